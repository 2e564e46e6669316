"""tools/check_language: each rule finds what breaks it, and nothing else."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import pathlib

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[3] / "tools" / "check_language"
LONG = " ".join(f"word{number}" for number in range(31))


@pytest.fixture(scope="module")
def check():
    loader = importlib.machinery.SourceFileLoader("check_language", str(PROGRAM))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_language", loader))
    loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("Start it.\nServe it an" + "ew.\n", [2]),
        ("What is sa" + "id is men" + "ded.\n", [1, 1]),
        ("He said so, and amends the recommended line.\n", []),
    ],
)
def test_words_to_avoid(check, text, lines):
    assert [line for line, _problem in check.words_to_avoid(text)] == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (f"# Title\n\n{LONG}.\n", [3]),
        # A paragraph over several lines, and the entries of a list.
        ("First.\n\n" + LONG.replace(" word15", "\nword15") + ".\n", [3]),
        (f"- short\n- {LONG}\n", [2]),
        (f"| a | {LONG} |\n", [1]),
        # No sentence of words: code, a link's address, and short sentences one after the other.
        (f"```\n{LONG}\n```\n`{LONG}`\n", []),
        (f"[page]({LONG.replace(' ', '/')})\n", []),
        (LONG.replace(" word15", ". Word15") + ".\n", []),
        ("- one\n" * 40, []),
    ],
)
def test_long_sentences(check, text, lines):
    assert [line for line, _problem in check.long_sentences(text)] == lines


def test_names_of_tasks(check):
    text = """
- name: Enable CDI
  hosts: all
  vars: {name: anything}
  tasks:
    - name: CDI
      debug: {name: anything}
    - name: Drain the node
      block:
        - name: Pods away
          debug:
      rescue:
        - name: What went wrong
          debug:
"""
    assert [line for line, _problem in check.task_names(text)] == [6, 10, 13]
