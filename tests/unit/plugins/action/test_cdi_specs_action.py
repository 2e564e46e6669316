"""A check of an edited declaration says of the CDI specs what the run does: task by task, and line by line."""

from __future__ import annotations

import json
import os
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import cdi_specs
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge.files import item_of
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import Ledger
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.managed import Managed
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration, plugin_cli, specs


def resource(name, *devices, **more):
    listed = [{"id": device, "nodes": [{"path": f"/dev/{device}"}]} for device in devices]
    return {"name": f"example.com/{name}", "devices": listed, **more}


class Node:
    """A node's spec directory, with what the role has written there and who holds what."""

    def __init__(self, directory) -> None:
        self.cdi = str(directory / "cdi")
        self.ledger = str(directory / "ledger")
        self.held: list = []

    def facts(self):
        """As node_preflight gives them, once a play."""
        names = sorted(os.listdir(self.cdi)) if os.path.isdir(self.cdi) else []
        files = []
        for name in names:
            with open(f"{self.cdi}/{name}") as file:
                files.append(
                    {"path": f"{self.cdi}/{name}", "directory": self.cdi, "name": name, "content": file.read()}
                )
        return {"runtime": {"name": "x", "version": "1"}, "cdi_files": files, "ledger": Ledger(self.ledger).entries}

    def play(self, *resources, check):
        """What both tasks of site.yml show."""
        declared = declaration.read({"node_devices_resources": list(resources)}, lambda value: value).as_data()
        facts = self.facts()
        return [
            self._task({"declaration": declared, "node": facts, **more}, check) for more in ({}, {"state": "pruned"})
        ]

    def _task(self, arguments, check):
        action = object.__new__(cdi_specs.ActionModule)
        action._task = types.SimpleNamespace(args={"command": "plugin", **arguments}, check_mode=check)
        action._templar = None

        def execute(module_name, module_args, task_vars):
            given = [{"type": "file", "validate": None, **file} for file in module_args["files"]]
            wanted = [item_of(file) for file in given]
            pending = {path: text.encode() for path, text in module_args.get("pending", {}).items()}
            ledger = Ledger(self.ledger)
            managed = Managed(ledger, module_args["owner"], check=check, pending=pending)
            if check:
                report = managed.converge(wanted)
            else:
                with ledger:
                    report = managed.converge(wanted)
            return {"changed": report.changed, "diff": report.diffs}

        action._execute_module = execute
        result = action.run(None, {"inventory_hostname": "node1"})
        assert not result.get("failed"), result
        return result["changed"], sorted(result.get("diff", []), key=lambda diff: diff["before_header"])


@pytest.fixture
def node(tmp_path, monkeypatch):
    made = Node(tmp_path)
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(specs, "DIRECTORY", made.cdi)
    monkeypatch.setattr(plugin_cli, "holders", lambda *_arguments: {"held": made.held, "allocatable": {}})
    return made


BEFORE = (resource("aa", "a0", "a1"), resource("bb", "b0"))
EDITS = {
    "add": (*BEFORE, resource("cc", "c0")),
    "change": (resource("aa", "a0", "a1", container_edits={"env": ["NEW=1"]}), BEFORE[1]),
    "remove": BEFORE[:1],
    "remove all": (),
    "remove a device": (resource("aa", "a1"), BEFORE[1]),
    "rename": (resource("renamed", "a0", "a1"), BEFORE[1]),
    "move a device": (resource("aa", "a0"), resource("bb", "b0", "a1")),
    "discover what was declared": (resource("aa", discover={"paths": ["/dev/a*"]}), BEFORE[1]),
    "all at once": (resource("aa", "a1", container_edits={"env": ["NEW=1"]}), resource("renamed", "b0")),
}


@pytest.mark.parametrize("held", [(), ("a0",), ("a0", "b0")])
@pytest.mark.parametrize("edit", EDITS)
def test_a_check_shows_what_the_run_shows(node, edit, held):
    node.play(*BEFORE, check=False)
    node.held = [
        {"resource": f"example.com/{device[0] * 2}", "device": device, "namespace": "default", "pod": "p"}
        for device in held
    ]
    foretold = node.play(*EDITS[edit], check=True)
    done = node.play(*EDITS[edit], check=False)
    assert foretold == done
    assert any(changed for changed, _diffs in done) or held
    # And back: what was discovered is declared again, too.
    foretold = node.play(*BEFORE, check=True)
    assert foretold == node.play(*BEFORE, check=False)
    assert [changed for changed, _diffs in node.play(*BEFORE, check=False)] == [False, False]


def test_the_name_of_a_group_is_the_nodes_number_in_the_spec(node, monkeypatch):
    """Also where the role runs alone, and an action that was given the node's facts."""
    facts = {**node.facts(), "accounts": {"groups": {"video": 44}}}
    monkeypatch.setattr(node, "facts", lambda: facts)
    camera = {"name": "example.com/camera", "devices": [{"id": "a", "nodes": [{"path": "/dev/null", "gid": "video"}]}]}
    node.play(camera, check=False)
    (name,) = os.listdir(node.cdi)
    with open(f"{node.cdi}/{name}") as file:
        assert json.load(file)["devices"][0]["containerEdits"]["deviceNodes"][0]["gid"] == 44


def test_a_check_of_a_bare_node_shows_what_the_run_shows(node):
    assert node.play(*BEFORE, check=True) == node.play(*BEFORE, check=False)
