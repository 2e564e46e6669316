"""The preflight of site.yml looks at a node with the arguments that the roles' tasks give to their modules later.

The collection's actions are stand-ins that write down their arguments. Playbook and roles are as they are.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest
import yaml
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.asked import completed

CHECKOUT = pathlib.Path(__file__).resolve().parents[3]
ACTION = """
import json
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        with open(task_vars["arguments_file"], "a") as file:
            file.write(json.dumps([self._task.action.rpartition(".")[2], self._task.args], default=dict) + "\\n")
        known = {"environment": {}, "ledger": {}, "kubelet": None, "device_plugins": {"instance": None}}
        shown = {"changed": False, "table": "", "what": [], "other_daemonsets": {}, "resources": [], "kept": []}
        return {**known, **task_vars["declared"], **shown, "declaration": task_vars["declared"]}
"""
STATUS = """
import json
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import drift

class ActionModule(ActionBase):
    _requires_connection = False

    def run(self, tmp=None, task_vars=None):
        super().run(tmp, task_vars)
        with open(task_vars["arguments_file"], "a") as file:
            asked = drift.arguments(self, task_vars, task_vars["declared"])
            file.write(json.dumps(["node_status", asked]) + "\\n")
        return {"changed": False}
"""
RESOURCES = [
    {"name": "example.com/lamp", "devices": [{"id": "a", "nodes": [{"path": "/dev/lamp0"}]}]},
    {"name": "example.com/licence", "capacity": 3},
]


@pytest.fixture
def given(tmp_path):
    """Runs a playbook; returns the arguments of each execution of a module, by the module's name."""
    collection = tmp_path / "collections" / "ansible_collections" / "nodedevices" / "kubernetes"
    actions = collection / "plugins" / "action"
    actions.mkdir(parents=True)
    for name in (
        "plugin",
        "playbooks",
        "plugins/filter",
        "plugins/lookup",
        "plugins/plugin_utils",
        "plugins/module_utils",
        "roles",
    ):
        (collection / name).symlink_to(CHECKOUT / name)
    for path in (CHECKOUT / "plugins" / "modules").glob("*.py"):
        (actions / path.name).write_text(STATUS if path.stem == "node_status" else ACTION)

    def run(name="site.yml", **variables):
        read = declaration.read({"node_devices_resources": RESOURCES}, lambda value: value)
        file = tmp_path / "arguments"
        of_host = {
            "ansible_connection": "local",
            "arguments_file": str(file),
            "declared": read.as_data(),
            "node_tools_environment": {"environment": "1.0.0", "changed": False},
            **variables,
        }
        inventory = {"node_devices": {"hosts": {"a": of_host}}}
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump(inventory))
        program = pathlib.Path(sys.executable).parent / "ansible-playbook"
        book = CHECKOUT / "playbooks" / name
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
        }
        command = [program, "--inventory", tmp_path / "hosts.yml", book]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING" not in done.stderr
        found = {}
        for line in file.read_text().splitlines():
            module, arguments = json.loads(line)
            found.setdefault(module, []).append(arguments)
        return found

    return run


LAMPS = {
    "host_devices_modules": [{"name": "lamp"}],
    "host_devices_udev_rules": ['KERNEL=="lamp*", MODE="0660"'],
    "host_devices_nodes": [{"path": "/dev/lamp1", "type": "c", "major": 1, "minor": 8}],
    "node_tools_keep": "3",
}


@pytest.mark.parametrize(
    ("mode", "restores", "owners", "units"),
    [
        ("service", False, ["device_plugin"], ["node-device-plugin.service"]),
        (
            "service",
            True,
            ["device_plugin", "extended_resources"],
            ["node-device-plugin.service", "node-device-capacities.timer"],
        ),
        ("daemonset", False, ["device_plugin"], []),
        ("daemonset", True, ["device_plugin", "extended_resources"], ["node-device-capacities.timer"]),
    ],
)
def test_they_are_those_of_the_roles(given, mode, restores, owners, units):
    done = given(device_plugin_mode=mode, extended_resources_restore=restores, **LAMPS)
    asked = done["node_preflight"][0]["converge"]
    assert [each["owner"] for each in asked["managed_files"]] == owners
    assert asked["managed_files"] == done["managed_files"]
    assert [each["name"] for each in asked["service"]] == units
    assert asked["service"] == done.get("service", [])
    assert [(each["state"], each["prune"]) for each in asked["host_devices"]] == [("present", False), ("pruned", True)]
    assert asked["host_devices"] == done["host_devices"]
    assert asked["host_devices"][0]["nodes"] == LAMPS["host_devices_nodes"]
    (runtime,) = asked["cdi_runtime"]
    assert runtime == {name: done["cdi_runtime"][0][name] for name in ("state", "command")}
    specs = [[completed("cdi_specs", each) for each in every] for every in (asked["cdi_specs"], done["cdi_specs"])]
    assert [each["state"] for each in specs[0]] == ["present", "pruned"]
    assert specs[0] == specs[1]
    (tools,) = asked["node_tools"]
    assert tools == {name: done["node_tools"][0][name] for name in tools}
    # The action gives the others to no module.
    assert set(done["node_tools"][0]) - set(tools) == {"cache", "specs", "host_devices"}
    if mode == "service":
        config, unit, sockets = asked["managed_files"][0]["files"]
        assert config["configuration"]["resources"][0]["name"] == "example.com/lamp"
        assert "ExecStart=" in unit["content"]
        assert sockets["private"] is True


@pytest.mark.parametrize("root", [None, "/srv/devices"])
def test_the_status_asks_as_site_yml(given, tmp_path, root):
    """Without the roles in its play. A role's own variables come before a host's."""
    of_role = {"device_plugin_unit": "/etc/other.service"}
    variables = {**LAMPS, **of_role, "extended_resources_restore": True, **({"node_tools_root": root} if root else {})}
    asked = given(**variables)["node_preflight"][0]["converge"]
    (tmp_path / "arguments").unlink()
    (of_status,) = given("status.yml", **variables)["node_status"]
    assert of_status == {name: asked[name] for name in asked if name not in ("cdi_runtime", "service")}
    unit = of_status["managed_files"][0]["files"][1]["content"]
    assert f"ExecStart={root or '/opt/node-devices'}/current/bin" in unit


def test_an_uninstall_asks_whether_the_role_has_devices(given):
    done = given("uninstall.yml", **LAMPS)
    (asked,) = done["node_preflight"][0]["converge"]["host_devices"]
    (given_to_role,) = done["host_devices"]
    assert given_to_role["state"] == "absent"
    asked_by_role = completed("host_devices", given_to_role)
    assert asked == {name: value for name, value in asked_by_role.items() if value is not None}


@pytest.mark.parametrize(("own", "root"), [(None, "/opt/node-devices"), ("/srv/devices", "/srv/devices")])
def test_an_uninstall_asks_with_the_roles_commands(given, own, root):
    """Tasks before the roles use the roles' defaults."""
    roots = {"node_tools_root": own} if own else {}
    kubeconfig = {"node_devices_kubeconfig": "x", "node_devices_drain": True}
    done = given("uninstall.yml", node_devices_in_use="wait", **roots, **kubeconfig)
    command = f"{root}/current/bin/node-device-plugin"
    assert [each["command"] for each in done["device_holders"]] == [command]
    assert [each["command"] for each in done["cdi_runtime"]] == [command] * 2
