"""What one task of a run has made is there for the tasks of other hosts, which are other processes."""

from __future__ import annotations

import multiprocessing
import os

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.remembered import remembered


def test_a_text_is_made_once(tmp_path):
    made = []

    def make():
        made.append(1)
        return "ä\r\n"

    assert [remembered("a", make), remembered("a", make), len(made)] == ["ä\r\n", "ä\r\n", 1]
    assert remembered("b", lambda: "another") == "another"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


def test_a_fork_has_it_too(tmp_path):
    process = multiprocessing.get_context("fork").Process(target=remembered, args=("a", lambda: str(os.getpid())))
    process.start()
    process.join()
    assert remembered("a", lambda: "made again") == str(process.pid)


def test_a_failure_is_not_remembered(tmp_path):
    def fail():
        raise LookupError

    with pytest.raises(LookupError):
        remembered("a", fail)
    assert remembered("a", lambda: "made") == "made"
