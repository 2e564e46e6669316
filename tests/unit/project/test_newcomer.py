"""tests/newcomer: the README's commands, as a machine runs them that has built nothing."""

from __future__ import annotations

import os
import subprocess
import types

import pytest
import the_project as project
from command_lines import commands
from documented_blocks import ROOT, blocks, text_of

newcomer = project.newcomer()
RECAP = (
    "PLAY RECAP ***\nlab-node1 : ok=9    changed=0    unreachable=0\nlab-node2                  : ok=7 changed=%d un\n"
)


def test_the_readme_says_what_runs_and_in_which_order():
    assert [command.line for command in newcomer.commands()] == [
        "make test",
        "make lab",
        ".venv/bin/ansible-playbook -i inventories/lab playbooks/site.yml",
        "make lab-down",
    ]
    assert newcomer.commands()[2].comment == "changed=0"
    in_blocks = [" ".join(words) for block in blocks(text_of("README.md")) for words in commands(block.text)]
    assert {command.line for command in newcomer.commands()} <= set(in_blocks)


def test_no_built_program_is_found(tmp_path, monkeypatch):
    """Also if the `make` around it knows them, and hands its own command line on."""
    built = dict.fromkeys(("KUBERNETES_BIN_DIR", "CONTAINERD_NEWEST_BIN_DIR", "CRIO_BIN_DIR"), "/built")
    for name, value in {**built, "ONLY": "newcomer", "MAKEFLAGS": "n -- ONLY=newcomer", "MAKELEVEL": "2"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{ROOT}/.venv/bin:{os.environ['PATH']}")
    shown = subprocess.run(
        ["make", "--no-print-directory", "--eval=show-environment:; @env", "show-environment"],
        cwd=ROOT,
        env=newcomer.environment(str(tmp_path)),
        capture_output=True,
        text=True,
        check=True,
    )
    known = dict(line.split("=", 1) for line in shown.stdout.splitlines() if "=" in line)
    assert [name for name in known if name.endswith("_BIN_DIR") or name == "ONLY"] == []
    assert (known["XDG_CACHE_HOME"], known["HOME"]) == (str(tmp_path), os.environ["HOME"])
    # The Makefile adds .venv/bin itself; a newcomer's shell does not have it.
    assert f"{ROOT}/.venv/bin" not in newcomer.environment(str(tmp_path))["PATH"].split(":")


@pytest.mark.parametrize(
    ("comment", "code", "output", "says"),
    [
        ("changed=0", 0, RECAP % 0, ""),
        ("changed=0", 0, RECAP % 2, "a second run must change nothing, but it changed lab-node2"),
        ("changed=0", 0, "", "the play has no recap, but must report changed=0"),
        ("changed=0", 4, RECAP % 0, "exit code 4"),
        ("some minutes", 0, RECAP % 2, ""),
        ("", 2, "", "exit code 2"),
    ],
)
def test_what_is_wrong_with_a_result(comment, code, output, says):
    assert newcomer.problem(newcomer.Command("x", comment), code, output) == says


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """What runs, and the lab's nodes."""
    seen = types.SimpleNamespace(lines=[], caches=set(), nodes=[], results={})

    def run(line, cache):
        seen.lines.append(line)
        seen.caches.add((cache, tuple(os.listdir(cache))))
        seen.nodes = {"make lab": ["lab-node1"], "make lab-down": []}.get(line, seen.nodes)
        return seen.results.get(line, (0, RECAP % 0))

    monkeypatch.setattr(newcomer, "run", run)
    monkeypatch.setattr(newcomer, "lab_nodes", lambda: seen.nodes)
    monkeypatch.setattr(newcomer, "EVIDENCE", tmp_path / "evidence")
    monkeypatch.setattr(newcomer.subprocess, "run", lambda command: seen.lines.append(command[1].name))
    return seen


def test_all_commands_share_one_empty_cache_that_goes(machine):
    assert newcomer.main() == 0
    assert machine.lines == [command.line for command in newcomer.commands()]
    ((cache, content),) = machine.caches
    assert content == ()
    assert not os.path.exists(cache)


def test_a_failure_ends_it_and_leaves_no_node(machine, capsys):
    play = newcomer.commands()[2].line
    machine.results[play] = (0, RECAP % 1)
    assert newcomer.main() == 1
    assert machine.lines == ["make test", "make lab", play, "evidence.py", "make lab-down"]
    assert capsys.readouterr().out == f"failed: {play}: a second run must change nothing, but it changed lab-node2\n"


def test_a_lab_that_runs_is_nobody_s_to_destroy(machine, capsys):
    machine.nodes = ["lab-node1"]
    assert newcomer.main() == 1
    assert machine.lines == []
    assert "first run: make lab-down" in capsys.readouterr().out


def test_only_the_lab_s_own_nodes_count(tmp_path, monkeypatch):
    engine = tmp_path / "engine"
    engine.write_text("#!/bin/sh\nprintf 'default-node1\\nlab-node2\\nlab-node\\n'\n")
    engine.chmod(0o755)
    monkeypatch.setattr(newcomer, "ENGINE", engine)
    assert newcomer.lab_nodes() == ["lab-node2"]
    engine.write_text("#!/bin/sh\necho 'no engine' >&2\nexit 127\n")
    assert newcomer.lab_nodes() == []
