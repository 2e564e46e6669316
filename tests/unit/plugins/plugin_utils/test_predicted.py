"""Where an owner's files are in place, nothing is executed; check mode has the answer that the module itself has."""

from __future__ import annotations

import os
import types

import pytest
from ansible import constants
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import files as converge_files
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import registry
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import asked, preflight, wheels


class Node:
    """A directory on which the module works, and the module itself."""

    check_mode = False

    def __init__(self, directory):
        self.directory, self.ledger, self.executed = directory, str(directory / "ledger"), 0
        self.files = [
            {"path": str(directory / "etc/a/x.json"), "content": "x"},
            {"path": str(directory / "etc/y"), "content": "y"},
            {"path": str(directory / "sockets"), "type": "directory"},
        ]

    def set_default_selinux_context(self, path, changed):
        pass

    def look(self, files=None):
        """The facts of a play's preflight, which asks with these files."""
        asked = {"managed_files": [{"owner": "us", "files": self.files if files is None else files}]}
        answered = registry.answers(self, asked)
        return {"read_in": "play", "converged": preflight._by_arguments(asked, answered)}

    def converge(self, files, look, check=False, **more):
        task = types.SimpleNamespace(check_mode=check, get_play=lambda: types.SimpleNamespace(_uuid="play"))
        action = types.SimpleNamespace(_task=task, _execute_module=self._execute)
        self.check_mode = check
        seen = preflight.Preflight(action, {"inventory_hostname": "node1", "node_devices_node": look})
        return seen.execute("managed_files", {"owner": "us", "files": files, **more})

    def _execute(self, module_name, module_args, task_vars):
        self.executed += 1
        validator = registry.ArgumentSpecValidator(converge_files.PARAMS)
        params = validator.validate(module_args).validated_parameters
        return node_module.Node(self).converged(converge_files.converge, params)


@pytest.fixture
def node(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path / "tmp"))
    made = Node(tmp_path)
    monkeypatch.setattr(node_module, "Ledger", lambda: Ledger(made.ledger))
    assert made.converge(made.files, None)["changed"] is True
    made.executed = 0
    return made


@pytest.mark.parametrize("check", [False, True])
def test_files_that_are_in_place_are_not_written(node, check):
    assert (node.converge(node.files, node.look(), check)["changed"], node.executed) == (False, 0)


def test_nobody_has_looked(node):
    assert (node.converge(node.files, None)["changed"], node.executed) == (False, 1)


def edited(node):
    (node.directory / "etc/y").write_text("z")


def gone(node):
    (node.directory / "etc/y").unlink()


def opened(node):
    (node.directory / "etc/a/x.json").chmod(0o666)


def opened_above(node):
    (node.directory / "etc/a").chmod(0o777)


def given_away(node):
    os.chown(node.directory / "etc/y", 12, 12)


def without_directory(node):
    (node.directory / "sockets").rmdir()


def kept_by_somebody(node):
    """A file that the owner no longer wants, and that somebody changed."""
    node.converge([*node.files, {"path": str(node.directory / "etc/z"), "content": "z"}], None)
    (node.directory / "etc/z").write_text("theirs")


@pytest.mark.parametrize("drift", [edited, gone, opened, opened_above, given_away, without_directory, kept_by_somebody])
def test_what_somebody_else_did_is_put_right(node, drift):
    drift(node)
    node.executed = 0
    look = node.look()
    said = node.converge(node.files, look, check=True)
    assert node.executed == 0
    done = node.converge(node.files, look)
    assert (said, node.executed) == (done, 1)
    assert said["changed"] is (drift is not kept_by_somebody)
    assert len(said["warnings"]) == (drift is kept_by_somebody)


def lost(node):
    os.unlink(os.path.join(node.ledger, "ledger.json"))
    for file in node.files[:2]:
        os.rename(file["path"], file["path"] + "-node-device")
        file["path"] += "-node-device"


def unclaimed(node):
    """Another owner made the directory, and ours is not among those that need it."""
    with Ledger(node.ledger) as ledger:
        ledger.entries[str(node.directory / "etc")]["owners"] = ["them"]
        ledger.save()


@pytest.mark.parametrize("drift", [lost, unclaimed])
def test_a_record_that_is_missing_is_written_although_nothing_changes(node, drift):
    drift(node)
    before, look = Ledger(node.ledger).entries, node.look()
    assert (node.converge(node.files, look, check=True)["changed"], node.executed) == (False, 0)
    assert Ledger(node.ledger).entries == before
    assert (node.converge(node.files, look)["changed"], node.executed) == (False, 1)
    assert Ledger(node.ledger).entries != before


@pytest.mark.parametrize(
    "change",
    [
        lambda files: files[1:],
        lambda files: files[:-1],
        lambda files: [*files[:-1], {**files[-1], "private": True}],
        lambda files: [files[0], *files[2:]],
        lambda files: [{**files[0], "content": "other"}, *files[1:]],
        lambda files: [*files, {**files[0], "path": files[0]["path"] + ".more"}],
    ],
)
def test_what_is_wanted_otherwise_is_written(node, change):
    look, files = node.look(), change(node.files)
    # Other arguments than the preflight's.
    assert (node.converge(files, look, check=True)["changed"], node.executed) == (True, 1)
    # The preflight has asked for the same files: its answer is the module's, and only a real run executes the module.
    asked = node.look(files)
    said = node.converge(files, asked, check=True)
    assert node.executed == 1
    assert (node.converge(files, asked), node.executed) == (said, 2)
    # And back in the same play, whose look is from before.
    assert (node.converge(node.files, look)["changed"], node.executed) == (True, 3)


def test_a_refused_set_of_files_is_no_answer(node):
    (problem,) = node.look([{"path": "etc/relative", "content": ""}])["converged"]["managed_files"][0]["answer"][
        "problems"
    ]
    assert problem == "etc/relative: must be an absolute path in its shortest form"
    (problem,) = node.look([{"path": "/etc/x"}])["converged"]["managed_files"][0]["answer"]["problems"]
    assert problem == "/etc/x: content is required for a file"


def test_the_preflight_asks_with_the_targets_that_the_task_gives(monkeypatch):
    monkeypatch.setattr(wheels, "targets", lambda: {"cp39-x86_64": {}})
    given = {"converge": {"node_tools": [{"root": "/a"}], "service": [{"name": "a"}]}}
    parsed = asked.parse(given, None, "node1", 1, None)
    assert parsed.converge == {
        "node_tools": [{"root": "/a", "targets": {"cp39-x86_64": {}}}],
        "service": [{"name": "a"}],
    }
    assert given == {"converge": {"node_tools": [{"root": "/a"}], "service": [{"name": "a"}]}}


@pytest.mark.parametrize(
    ("given", "key", "expected"),
    [
        ({"command": "/x"}, "restarted", True),
        ({"command": "/x"}, "seconds", False),
        ({"command": "/x", "specs": {}}, "restarted", False),
        (None, "restarted", False),
    ],
)
def test_what_the_preflight_expects_holds_also_after_a_write(given, key, expected):
    """It says only whether a node waits for its turn; the module decides again."""
    answered = {"cdi_runtime": [{"answer": {"changed": True, "restarted": True}, "has_unshown_work": False}]}
    converged = preflight._by_arguments({"cdi_runtime": [{"command": "/x"}]}, answered)
    play = types.SimpleNamespace(_uuid="play")
    action = types.SimpleNamespace(_task=types.SimpleNamespace(check_mode=False, get_play=lambda: play))
    known = {"read_in": "play", "converged": converged if given else {}}
    look = preflight.Preflight(action, {"inventory_hostname": "node1", "node_devices_node": known})
    assert look.expects("cdi_runtime", given or {}, key) is expected
