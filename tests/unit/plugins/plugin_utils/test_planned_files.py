"""Where an owner's files are in place, nothing is executed; a check is what the module itself would say."""

from __future__ import annotations

import os
import types

import pytest
from ansible import constants
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import Managed, settled
from ansible_collections.nodedevices.kubernetes.plugins.modules.managed_files import item_of
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import planned_files, preflight


class Node:
    """A directory on which the module works."""

    def __init__(self, directory):
        self.directory, self.ledger, self.executed = directory, str(directory / "ledger"), 0
        self.files = [
            {"path": str(directory / "etc/a/x.json"), "content": "x"},
            {"path": str(directory / "etc/y"), "content": "y"},
            {"path": str(directory / "sockets"), "type": "directory"},
        ]

    def look(self):
        ledger = Ledger(self.ledger)
        return {"ledger": ledger.entries, "settled": settled(ledger), "read_in": "play"}

    def converge(self, files, look, check=False, **more):
        task = types.SimpleNamespace(check_mode=check, get_play=lambda: types.SimpleNamespace(_uuid="play"))
        action = types.SimpleNamespace(_task=task, _execute_module=self._execute)
        self._check = check
        seen = preflight.Preflight(action, {"inventory_hostname": "node1", "node_devices_node": look})
        return planned_files.converge(seen, seen.known, {"owner": "us", "files": files, **more})["changed"]

    def _execute(self, module_name, module_args, task_vars):
        self.executed += 1
        given = [{"type": "file", "validate": None, **file} for file in module_args["files"]]
        ledger = Ledger(self.ledger)
        managed = Managed(ledger, "us", check=self._check)
        if self._check:
            return {"changed": managed.converge([item_of(None, file) for file in given]).changed}
        with ledger:
            return {"changed": managed.converge([item_of(None, file) for file in given]).changed}


@pytest.fixture
def node(tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path / "tmp"))
    made = Node(tmp_path)
    assert made.converge(made.files, None) is True
    made.executed = 0
    return made


@pytest.mark.parametrize("check", [False, True])
def test_files_that_are_in_place_are_not_written(node, check):
    assert (node.converge(node.files, node.look(), check), node.executed) == (False, 0)


def test_nobody_has_looked(node):
    assert (node.converge(node.files, None), node.executed) == (False, 1)


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


@pytest.mark.parametrize("drift", [edited, gone, opened, opened_above, given_away, without_directory])
def test_what_somebody_else_did_is_put_right(node, drift):
    drift(node)
    look = node.look()
    assert node.converge(node.files, look, check=True) is True
    assert (node.converge(node.files, look), node.executed) == (True, 2)


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
    assert node.converge(files, look, check=True) is True
    assert (node.converge(files, look), node.executed) == (True, 2)
    # And back in the same play, whose look is from before.
    assert (node.converge(node.files, look), node.executed) == (True, 3)
