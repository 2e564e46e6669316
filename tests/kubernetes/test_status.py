"""What action node_status reads of the node object, with no more rights than that."""

from __future__ import annotations

import types

import pytest
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.nodedevices.kubernetes.plugins.action import node_status

DONGLE = "example.com/dongle"


@pytest.fixture(autouse=True)
def _no_roles(monkeypatch):
    """Of the node itself nothing is compared."""
    monkeypatch.setattr(node_status.drift, "arguments", lambda *_arguments: {})


@pytest.fixture
def node(cluster):
    node = cluster.node({"cpu": "2"})
    with node.kubelet():
        yield node


def look(cluster, node, name=None):
    """The node's entry; of the node itself nothing is reached."""
    action = object.__new__(node_status.ActionModule)
    arguments = {"command": "/x", "kubeconfig": cluster.kubeconfig({"token": "reader-token"})}
    action._task = types.SimpleNamespace(args={**arguments, "node_name": name or node.name}, check_mode=False)
    action._templar = types.SimpleNamespace(template=lambda value: value)

    def execute(**_arguments):
        raise AnsibleConnectionFailure("no route")

    action._execute_module = execute
    declared = [{"name": DONGLE, "capacity": 4}]
    return action.run(None, {"inventory_hostname": "worker1", "node_devices_resources": declared})["status"]


def shown(entry):
    (row,) = entry["resources"]
    return row["capacity"], row["healthy"], row["state"], row["reasons"]


def test_a_fixed_capacity_as_declared_and_after_a_reset(run, cluster, node):
    run(node, {DONGLE: 4})
    entry = look(cluster, node)
    # What the cluster knows is shown of a node that is not reached, too.
    assert (entry["state"], entry["problems"]) == ("unreachable", ["no route"])
    assert shown(entry) == (4, 4, "healthy", [])
    node.set_capacity("kubelet", DONGLE, "0")
    capacity, _healthy, state, reasons = shown(look(cluster, node))
    assert (capacity, state) == (0, "not as declared")
    assert reasons == ["reset by a restart of the kubelet: the next run restores it"]


def test_what_the_cluster_refuses_is_a_problem_of_the_node(run, cluster, node):
    entry = look(cluster, node, "elsewhere")
    assert entry["problems"][1].startswith("the cluster has no node elsewhere: set node_devices_node_name")
    assert shown(entry) == (4, None, "unknown", [])
