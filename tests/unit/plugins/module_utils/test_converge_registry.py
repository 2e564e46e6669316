"""The answers of converge functions in check mode, in one execution: exact, and nothing ends the look at the node."""

from __future__ import annotations

import json
import os
import platform
import sys

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import boot_unit
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import registry, service
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment import change
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import base_python
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.environments import Environments
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger, sha256

A, B = "0.1.0-aaaaaaaaaaaa", "0.2.0-bbbbbbbbbbbb"


class Node:
    """A node with an environment that a run has made current, and with systemd."""

    check_mode = False

    def __init__(self, directory):
        self.root, self.book = directory / "tools", str(directory / "ledger")
        mine = "cp%d%d-%s" % (*sys.version_info[:2], platform.machine())
        targets = {mine: {"glibc": [2, 17], "environment": A}}
        self.settings = {
            "root": str(self.root),
            "command": str(directory / "command"),
            "keep": 2,
            "targets": targets,
        }
        self.unit, self.said = "LoadState=loaded\nActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\n", []
        self.lay_out(A)
        with Ledger(self.book) as ledger:
            params = {**self.settings, "timeout": 0, "retry": False, "left": None}
            Environments(node_module.Node(self), ledger, params).converge("present", A)

    def lay_out(self, name):
        binaries = self.root / "versions" / name / "bin"
        binaries.mkdir(parents=True)
        (binaries / "node-device-plugin").touch(mode=0o755)
        (binaries / "python").symlink_to(base_python())
        marker = {"name": name, "python": list(sys.version_info[:2])}
        (binaries.parent / "complete.json").write_text(json.dumps(marker))

    def set_default_selinux_context(self, path, changed):
        pass

    def run_command(self, command, handle_exceptions=True):
        assert handle_exceptions is False, "nothing that is foreseen may end the look at the node"
        if self.unit is None:
            raise FileNotFoundError(command[0])
        self.said.append(command[:2])
        return 0, self.unit, ""


@pytest.fixture
def node(tmp_path, monkeypatch):
    made = Node(tmp_path)
    monkeypatch.setattr(boot_unit, "UNITS", str(tmp_path / "units"))
    monkeypatch.setattr(node_module, "Ledger", lambda: Ledger(made.book))
    return made


def look(node, name, arguments):
    """The answer for one module's arguments, and whether a real run would do something."""
    (found,) = registry.answers(node, {name: [arguments]})[name]
    return found and (found["answer"], found["answer"]["changed"] or found["has_unshown_work"])


def test_an_environment_that_is_right_needs_no_execution(node):
    before = Ledger(node.book).entries
    answer = {
        "changed": False,
        "incomplete": False,
        **{key: [] for key in ("written", "contents", "edited", "removed", "kept", "diff", "warnings")},
        "was": A,
        "environment": str(node.root / "versions" / A),
        "restarted": False,
    }
    assert look(node, "node_tools", node.settings) == (answer, False)
    assert Ledger(node.book).entries == before


def test_every_arguments_have_an_answer_in_their_order(node):
    elsewhere = {**node.settings, "root": str(node.root / "other"), "command": ""}
    asked = {"node_tools": [node.settings, {"keep": "many"}, elsewhere]}
    first, wrong, other = registry.answers(node, asked)["node_tools"]
    assert first["answer"]["environment"].endswith(A)
    # The module itself says what is wrong with its arguments, or with one beside another.
    assert wrong is None
    no_targets = {"root": node.settings["root"]}
    asked = {"node_tools": [no_targets, {**no_targets, "state": "absent"}], "cdi_runtime": [{"state": "absent"}]}
    lacking = registry.answers(node, asked)
    assert [each is None for name in asked for each in lacking[name]] == [True, False, True]
    assert str(node.root / "other" / "current") in other["answer"]["written"]


def no_link(node):
    (node.root / "current").unlink()


def another_is_current(node):
    node.lay_out(B)
    (node.root / "current").unlink()
    (node.root / "current").symlink_to(f"versions/{B}")


def no_command(node):
    os.unlink(node.settings["command"])


def not_complete(node):
    (node.root / "versions" / A / "complete.json").unlink()


def edited(node):
    marker = node.root / "versions" / A / "complete.json"
    marker.write_text(json.dumps({**json.loads(marker.read_text()), "files": {"gone.py": [0o100644, 0, 0, 1, 1]}}))


def ledger_lost(node):
    os.unlink(os.path.join(node.book, "ledger.json"))


def ledger_broken(node):
    with open(os.path.join(node.book, "ledger.json"), "w") as file:
        file.write("{")


def cut_off(node):
    os.makedirs(boot_unit.UNITS)
    change._write_guard("x.service", str(node.root), A)


def too_many(node):
    node.lay_out(B)
    with Ledger(node.book) as ledger:
        ledger.entries[str(node.root / "versions" / B)] = {"kind": "tree", "owner": f"node_tools {node.root}"}
        ledger.save()
    node.settings["keep"] = 1


@pytest.mark.parametrize(
    "drift",
    [
        no_link,
        another_is_current,
        no_command,
        not_complete,
        edited,
        ledger_lost,
        ledger_broken,
        cut_off,
        too_many,
    ],
)
def test_an_environment_with_something_to_do_is_executed(node, drift):
    drift(node)
    before = sorted(os.walk(node.root))
    if drift is ledger_broken:
        (problem,) = look(node, "node_tools", node.settings)[0]["problems"]
        assert "ledger.json is damaged" in problem
    else:
        answer, is_needed = look(node, "node_tools", node.settings)
        assert is_needed
        assert os.path.basename(answer["environment"]) == A
        changed = {no_link: ["current"], another_is_current: ["current"], no_command: ["../command"]}
        changed.update({each: [f"versions/{A}"] for each in (not_complete, edited)})
        assert [os.path.relpath(path, node.root) for path in answer["edited"]] == changed.get(drift, [])
    assert sorted(os.walk(node.root)) == before


def asked_of(node, monkeypatch, recorded):
    """recorded: the content with which the unit is recorded to have started; None for no record."""
    path = node.root / "unit"
    monkeypatch.setattr(service, "DIRECTORY", str(node.root))
    if recorded is not None:
        started = {"invocation": "1", "files": {str(path): sha256(recorded.encode())}}
        (node.root / "node-devices.x.service.started").write_text(json.dumps(started))
    path.write_text("unit")
    if node.unit:
        node.unit += "InvocationID=1\n"
    return {"name": "x.service", "files": [str(path)]}


def test_a_service_that_started_with_its_files_is_foreseen(node, monkeypatch):
    asked = asked_of(node, monkeypatch, "unit")
    answer = {"changed": False, "actions": [], "invocation_id": "1", "problems": [], "warnings": []}
    assert look(node, "service", asked) == (answer, False)
    assert node.said == [["systemctl", "show"]]


@pytest.mark.parametrize(
    ("unit", "recorded"),
    [
        ("ActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\n", "other"),
        # The module records the start.
        ("ActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=no\n", None),
        ("ActiveState=active\nUnitFileState=enabled\nNeedDaemonReload=yes\n", "unit"),
        ("ActiveState=active\nUnitFileState=disabled\nNeedDaemonReload=no\n", "unit"),
        ("ActiveState=inactive\nUnitFileState=enabled\nNeedDaemonReload=no\n", "unit"),
        ("", "unit"),
        (None, "unit"),
    ],
)
def test_a_service_with_something_to_do_is_executed(node, monkeypatch, unit, recorded):
    node.unit = unit
    found = look(node, "service", asked_of(node, monkeypatch, recorded))
    assert found is None if not unit else found[1]
    assert node.said in ([["systemctl", "show"]], [])
