"""No action changes the node of another machine, and none trusts a name that the machine's kubelet does not have."""

from __future__ import annotations

import copy
import types

import pytest
from ansible import constants
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import (
    daemonset,
    extended_resources,
    node_drain,
    node_preflight,
    verification,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import framed, plugin_cli
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.declaration import read
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import same_machine as same_machines
from test_preflight_access import FACTS

DEVICE = {"name": "a.example/dev", "devices": [{"id": "one"}], "env": {"X": "/one"}}
DECLARED = read({"node_devices_resources": [DEVICE]}, template=lambda value: value).as_data()
PATCHING = {**DECLARED, "capacities": {"example.com/licence": 99}}
IMAGE = {"image": "x/y:1", "namespace": "same-machine"}
NODE = {
    **FACTS,
    "init": "systemd",
    "kubelet": None,
    "runtime": {"name": "containerd", "socket": "/x", "obstacles": []},
    "missing_devices": [],
    "missing_host_paths": [],
    "other_than_devices": {},
    "device_links": {},
    "commands": ["/x"],
}
#: Each action that uses a node's name, and its arguments.
STEPS = {
    "preflight": (node_preflight, {"requires": ["python"], "declaration": DECLARED}),
    "preflight of an uninstall": (node_preflight, {"requires": ["python"]}),
    "capacities": (extended_resources, {"declaration": PATCHING}),
    "no capacities": (extended_resources, {"declaration": PATCHING, "state": "absent"}),
    "drain": (node_drain, {"state": "drained"}),
    "uncordon": (node_drain, {"state": "uncordoned"}),
    "configure": (daemonset, {"state": "configured", "declaration": DECLARED, "deployment": IMAGE}),
    "select": (daemonset, {"state": "selected", "deployment": IMAGE}),
    "remove": (daemonset, {"state": "removed", "deployment": IMAGE}),
    "prove": (verification, {"declaration": DECLARED, "tool": "/x", "record": "/y"}),
    "forget proofs": (verification, {"state": "absent"}),
}


def joined(cluster):
    """A node whose kubelet has reported its machine's id."""
    made = cluster.node({"cpu": "2"})
    made.patch(
        "kubelet", [{"op": "add", "path": "/status/nodeInfo", "value": {"machineID": f"machine of {made.name}"}}]
    )
    return made


@pytest.fixture
def same_machine(monkeypatch, tmp_path):
    """Here nodes have machines. Each test is a run of its own."""
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))


@pytest.fixture
def node(cluster):
    """A node whose machine has an id that no other node has."""
    return joined(cluster)


@pytest.fixture
def run(cluster, monkeypatch):
    """run(step, the node's name, what its machine says of itself) gives the action's result."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    row = {"resource": "a.example/dev", "capacity": 1, "healthy": 1, "seen": [], "state": "unproven", "detail": ""}
    report = {"resources": [{**row, "shares": 1}], "image": "x/y:1", "problems": []}
    monkeypatch.setattr(plugin_cli, "answer", lambda *_arguments: copy.deepcopy(report))

    monkeypatch.setattr(framed, "run", lambda *_arguments: framed.Said(0, "", ""))
    path = cluster.kubeconfig()

    def run_step(step, name, identity, **variables):
        module, arguments = STEPS[step]
        action = object.__new__(module.ActionModule)
        arguments = {"kubeconfig": path, "node_name": name, "timeout": 20, **arguments}
        play = types.SimpleNamespace(_uuid="play")
        action._task = types.SimpleNamespace(args=arguments, check_mode=False, get_play=lambda: play)
        action._templar = types.SimpleNamespace(template=lambda value: value)
        action._compute_environment_string = lambda _given: None
        action._execute_module = lambda **_module: {**NODE, "identity": identity}
        return action.run(None, {"inventory_hostname": "host1", **variables})

    return run_step


@pytest.mark.parametrize("step", STEPS)
def test_the_node_of_another_machine_stays_as_it_is(cluster, node, run, step):
    own = joined(cluster)
    before = node.read()
    for identity, says in (
        ({"name": own.name, "machine_id": None, "system_uuid": None}, "as its kubelet's certificate says"),
        ({"name": None, "machine_id": f"machine of {own.name}", "system_uuid": None}, "is another machine"),
    ):
        result = run(step, node.name, identity)
        assert result["failed"] is True
        assert f"host1: {'this host is the node' if identity['name'] else 'node ' + node.name}" in result["msg"]
        assert says in result["msg"]
        assert f"set node_devices_node_name of this host to {own.name}" in result["msg"]
    assert node.read() == before


def test_the_machine_s_own_node_is_changed(node, run):
    with node.kubelet():
        result = run(
            "capacities", node.name, {"name": None, "machine_id": f"machine of {node.name}", "system_uuid": None}
        )
    assert result.get("changed") is True, result
    assert node.extended == {"example.com/licence": "99"}


def test_what_is_checked_once_is_not_asked_again(node, run, monkeypatch):
    mine = {"name": node.name, "machine_id": None, "system_uuid": None}
    assert "failed" not in run("uncordon", node.name, mine)
    monkeypatch.setattr(same_machines, "check", None)
    assert "failed" not in run("uncordon", node.name, mine)


def test_where_only_the_api_reaches_a_node_its_name_is_trusted(node, run):
    with node.kubelet():
        result = run("capacities", node.name, None, node_devices_api_only=True)
    assert result.get("changed") is True, result
