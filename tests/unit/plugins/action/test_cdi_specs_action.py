"""A check of an edited declaration says of the CDI specs what the run does: task by task, and line by line."""

from __future__ import annotations

import json
import os
import types

import pytest
from ansible import constants
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import cdi_specs
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import account_numbers, ledger, plugin_command
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import cdi_specs as on_node
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import node as nodes
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.converge import registry
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration, preflight
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.asked import parse

from node_device_plugin.cdi import role_specs


def resource(name, *devices, **more):
    listed = [{"id": device, "nodes": [{"path": f"/dev/{device}"}]} for device in devices]
    return {"name": f"example.com/{name}", "devices": listed, **more}


class Module:
    def __init__(self, check_mode) -> None:
        self.check_mode = check_mode

    def set_default_selinux_context(self, path, changed):
        return changed


class Node:
    """A node's spec directory, with what the role has written there and who holds what."""

    def __init__(self, directory) -> None:
        self.cdi = str(directory / "cdi")
        self.ledger = str(directory / "ledger")
        self.held: list = []

    def facts(self):
        """As node_preflight gives them, once a play."""
        return {"runtime": {"name": "x", "version": "1"}, "cdi_directories": [self.cdi]}

    def play(self, *resources, check):
        """What both tasks of site.yml show."""
        declared = declaration.read({"node_devices_resources": list(resources)}, lambda value: value).as_data()
        return [self._task({"declaration": declared, **more}, check) for more in ({}, {"state": "pruned"})]

    def _task(self, arguments, check):
        action = object.__new__(cdi_specs.ActionModule)
        action._task = types.SimpleNamespace(args={"command": "plugin", **arguments}, check_mode=check)
        action._templar = None

        def execute(module_name, arguments, task_vars):
            params = ArgumentSpecValidator(on_node.PARAMS).validate(
                {key: value for key, value in arguments.items() if key != "facts"}
            )
            assert not params.error_messages
            there = nodes.Node(Module(check), facts=arguments["facts"])
            return there.converged(on_node.converge, params.validated_parameters)

        action._execute_with_code = execute
        result = action.run(None, {"inventory_hostname": "node1"})
        assert not result.get("failed"), result
        return result["changed"], sorted(result.get("diff", []), key=lambda diff: diff["before_header"])


@pytest.fixture
def node(tmp_path, monkeypatch):
    made = Node(tmp_path)
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(preflight.Preflight, "look", lambda self, asked: made.facts())
    monkeypatch.setattr(role_specs, "DIRECTORY", made.cdi)
    monkeypatch.setattr(nodes, "Ledger", lambda: ledger.Ledger(made.ledger))
    monkeypatch.setattr(plugin_command, "holders", lambda *_arguments: {"held": made.held, "allocatable": {}})
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
    """Also where the role runs alone."""
    monkeypatch.setattr(account_numbers, "numbers", lambda groups: {"groups": dict.fromkeys(groups, 44)})
    camera = {"name": "example.com/camera", "devices": [{"id": "a", "nodes": [{"path": "/dev/null", "gid": "video"}]}]}
    node.play(camera, check=False)
    (name,) = os.listdir(node.cdi)
    with open(f"{node.cdi}/{name}") as file:
        assert json.load(file)["devices"][0]["containerEdits"]["deviceNodes"][0]["gid"] == 44


def test_a_check_of_a_bare_node_shows_what_the_run_shows(node):
    assert node.play(*BEFORE, check=True) == node.play(*BEFORE, check=False)


def test_after_the_preflight_only_a_change_executes_the_module(node, monkeypatch, tmp_path):
    """What pods hold may change after the preflight, so the module looks again at devices that may go."""
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    play = types.SimpleNamespace(_uuid="play")

    def executed(*resources, state, check=False):
        declared = read(*resources)
        # As the preflight in site.yml and the role's task give them.
        each = {"command": "plugin", **({"state": state} if state != "present" else {})}
        asked = parse({"converge": {"cdi_specs": [each]}}, declared, "node1", 1, None)
        answered = registry.answers(Module(check), asked.converge, node.facts())
        known = {"read_in": "play", "converged": preflight._by_arguments(asked.converge, answered)}
        action, done = object.__new__(cdi_specs.ActionModule), []
        arguments = {"command": "plugin", "state": state, "pruned": {}, "declaration": declared}
        action._task = types.SimpleNamespace(args=arguments, check_mode=check, get_play=lambda: play)
        action._execute_with_code = lambda *given: done.append(given) or {"changed": True}
        result = action.run(None, {"inventory_hostname": "node1", "node_devices_node": known})
        for path in tmp_path.glob("written-*"):
            path.unlink()
        return len(done), result["changed"]

    assert executed(*BEFORE, state="present", check=True) == (0, True)
    assert executed(*BEFORE, state="present") == (1, True)
    node.play(*BEFORE, check=False)
    for state in ("present", "pruned"):
        assert executed(*BEFORE, state=state) == executed(*BEFORE, state=state, check=True) == (0, False)
    # A device that is no longer declared stays until the task that prunes.
    assert executed(*EDITS["remove a device"], state="present") == (1, True)
    node._task({"declaration": read(*EDITS["remove a device"])}, check=False)
    assert executed(*EDITS["remove a device"], state="present") == (0, False)
    node.held = [{"resource": "example.com/aa", "device": "a0", "namespace": "default", "pod": "p"}]
    assert executed(*EDITS["remove a device"], state="pruned") == (1, True)
    assert executed(*EDITS["remove a device"], state="pruned", check=True) == (0, False)


def read(*resources):
    return declaration.read({"node_devices_resources": list(resources)}, lambda value: value).as_data()
