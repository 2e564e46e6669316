"""Whether a host is the machine of the node that it is named after."""

from __future__ import annotations

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import LacksRights, Place
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import remembered
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import same_machine

SAME = same_machine.Checked()


def check(cluster, kubeconfig, name, identity):
    return same_machine.check(cluster, kubeconfig, name, cluster.get(Place("nodes", name)), identity)


@pytest.fixture(autouse=True)
def _run_of_ansible(tmp_path, monkeypatch):
    monkeypatch.setattr(remembered.constants, "DEFAULT_LOCAL_TMP", str(tmp_path))


def host(name=None, machine_id="m1", system_uuid="u1"):
    return {"name": name, "machine_id": machine_id, "system_uuid": system_uuid}


class Cluster:
    """Nodes by name, each with its machine id and system UUID."""

    def __init__(self, may_list=True, **nodes):
        self.may_list, self.listed = may_list, 0
        self.nodes = {
            name: {
                "metadata": {"name": name},
                "status": {"nodeInfo": {"machineID": machine_id, "systemUUID": uuid, "kubeletVersion": "v1.37.2"}},
            }
            for name, (machine_id, uuid) in nodes.items()
        }

    def get(self, place):
        return self.nodes.get(place.name)

    def list(self, place):
        assert place == Place("nodes")
        self.listed += 1
        if not self.may_list:
            raise LacksRights("give this user list on nodes")
        return list(self.nodes.values())


@pytest.mark.parametrize(
    ("identity", "nodes"),
    [
        (host(), {"w1": ("m1", "u1"), "w2": ("m2", "u1")}),
        # Firmware and kernels differ in the case of a UUID.
        (host(system_uuid="AB"), {"w1": ("m1", "ab")}),
        (host(system_uuid=None), {"w1": ("m1", "u1"), "w2": ("m2", "u1")}),
        (host(machine_id=None), {"w1": ("m1", "u1")}),
        (host(), {"w1": ("m1", "")}),
        # The certificate decides: a kubelet in a container may have a machine id of its own.
        (host("w1", "other"), {"w1": ("m1", "u1")}),
        (host("w1"), {"w1": ("m1", "u1"), "w2": ("m1", "u1")}),
        (host("w1"), {"w1": ("", "")}),
        # Not there any more, as in an uninstall.
        (host("w1"), {}),
        (host(), {"w2": ("m2", "u2")}),
    ],
)
def test_the_node_s_machine(identity, nodes):
    assert check(Cluster(**nodes), "config", "w1", identity) == SAME


@pytest.mark.parametrize(
    ("identity", "nodes", "says"),
    [
        (
            host("w2"),
            {"w1": ("m1", "u1")},
            "this host is the node w2, as its kubelet's certificate says, and not w1: set node_devices_node_name of "
            "this host to w2",
        ),
        (host("w2"), {}, "this host is the node w2"),
        (
            host("w1", "m9", "u9"),
            {"w1": ("m1", "u1")},
            "this cluster's node w1 is another machine than this host (machineID m1, but this host has m9, systemUUID "
            "u1, but this host has u9): set node_devices_kubeconfig of this host to a kubeconfig of its own cluster",
        ),
        (
            host(),
            {"w1": ("m9", "u1"), "w2": ("m1", "u1")},
            "node w1 is another machine than this host (machineID m9, but this host has m1): set "
            "node_devices_node_name of this host to w2",
        ),
        # Both have to be equal: nodes in containers share a UUID, and cloned machines a machine id.
        (host(), {"w1": ("m1", "u9")}, "node w1 is another machine than this host (systemUUID u9"),
        (
            host(),
            {"w1": ("m9", "u9"), "w2": ("m8", "u8")},
            "node w1 is another machine than this host (machineID m9, but this host has m1, systemUUID u9, but this "
            "host has u1): set node_devices_node_name of this host, or restart its kubelet if its ids have changed",
        ),
        (
            host(),
            {"w1": ("m1", "u1"), "w2": ("m1", "u1")},
            "the ids of this host's machine fit several nodes (w1, w2), as of cloned machines: give each "
            "machine its own /etc/machine-id, and restart its kubelet",
        ),
        # The name is of neither.
        (host(), {"w1": ("m9", "u9"), "w2": ("m1", "u1"), "w3": ("m1", "u1")}, "fit several nodes (w2, w3)"),
    ],
)
def test_another_machine(identity, nodes, says):
    checked = check(Cluster(**nodes), "config", "w1", identity)
    assert says in checked.problem
    assert checked.unknown == ""


@pytest.mark.parametrize(
    ("identity", "nodes"),
    [
        (host(), {"w1": ("", "")}),
        (host(machine_id=None, system_uuid=None), {"w1": ("m1", "u1")}),
        # What a hostile node may answer.
        (None, {"w1": ("m1", "u1")}),
        ("w1", {"w1": ("m1", "u1")}),
        ({"name": ["w1"], "machine_id": 1, "system_uuid": "u" * 300}, {"w1": ("m1", "u1")}),
    ],
)
def test_what_nobody_knows_is_said(identity, nodes):
    checked = check(Cluster(**nodes), "config", "w1", identity)
    assert checked.problem == ""
    assert checked.unknown.startswith("node w1 has not joined yet, or does not report the ids of its machine")


def test_without_the_right_to_list_nodes_other_nodes_are_unknown():
    cluster = Cluster(may_list=False, w1=("m1", "u1"))
    assert "give this user list on nodes" in check(cluster, "config", "w1", host()).unknown
    assert "is another machine" in check(cluster, "config", "w1", host(machine_id="m2")).problem


def test_where_the_certificate_decides_no_other_node_is_read():
    cluster = Cluster(w1=("m1", "u1"))
    assert check(cluster, "config", "w1", host("w1")) == SAME
    assert cluster.listed == 0


def test_the_hosts_of_a_run_list_the_nodes_of_a_cluster_once():
    cluster = Cluster(**{f"w{number}": (f"m{number}", f"u{number}") for number in range(9)})
    for number in range(9):
        identity = host(None, f"m{number}", f"u{number}")
        assert check(cluster, "config", f"w{number}", identity) == SAME
    assert cluster.listed == 1
    # A node that joined after the list was read, and another cluster.
    cluster.nodes.update(Cluster(w10=("m1", "u1")).nodes)
    assert "fit several nodes (w1, w10)" in check(cluster, "config", "w10", host()).problem
    check(cluster, "other", "w2", host(None, "m2", "u2"))
    assert cluster.listed == 2
