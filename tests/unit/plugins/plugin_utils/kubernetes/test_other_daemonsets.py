"""Where else a node is, and where it has to go, of the DaemonSets of ours that a cluster has."""

from __future__ import annotations

import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import other_daemonsets
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError

OWN = "plugin"


class Cluster:
    """A cluster with OWN, and with what a test puts into it."""

    def __init__(self):
        self.deployment = types.SimpleNamespace(namespace="ours", name=OWN, node_selector={})
        self.daemon_sets, self.config_maps = [], {}
        self.api = types.SimpleNamespace(
            list=lambda _place, **_selectors: self.daemon_sets,
            get=lambda place: self.config_maps.get((place.namespace, place.name)),
        )
        self.add(OWN, "ours")

    def add(self, name, namespace="ours", *nodes, by_label=True):
        """by_label: as the playbooks deploy it, else as the command `manifests` of an earlier release makes it."""
        selector = {"nodeSelector": {manifests.NODE_LABEL: name}} if by_label else {}
        spec = {"template": {"spec": selector}}
        self.daemon_sets.append({"metadata": {"namespace": namespace, "name": name}, "spec": spec})
        self.config_maps[namespace, name] = {"data": dict.fromkeys(nodes, "{}")}


@pytest.fixture
def cluster():
    return Cluster()


def test_a_node_that_goes_is_taken_out_where_the_playbooks_put_it(cluster):
    cluster.add("a", "ours", "worker1", "worker2")
    cluster.add("z", "theirs", "worker1")
    cluster.add("without", "ours", "worker2")
    cluster.add("by-name", "ours", "worker1", by_label=False)
    cluster.add("by-name-without", "ours", "worker2", by_label=False)
    assert other_daemonsets.left(cluster, "worker1") == [
        {"namespace": "ours", "name": "a"},
        {"namespace": "theirs", "name": "z"},
    ]


def test_a_node_comes_from_daemonsets_whose_names_sort_before_and_after(cluster):
    cluster.add("a", "ours", "worker1")
    cluster.add("z", "ours", "worker1")
    cluster.add("without", "ours", "worker2")
    assert other_daemonsets.before(cluster, "worker1") == [
        {"namespace": "ours", "name": "a"},
        {"namespace": "ours", "name": "z"},
    ]


@pytest.mark.parametrize("nodes", [(), ("worker1",)])
def test_one_of_the_same_name_would_have_the_same_nodes(cluster, nodes):
    cluster.add(OWN, "theirs", *nodes)
    with pytest.raises(DeploymentError, match=f"^DaemonSet {OWN} in namespace theirs has the same name as the new one"):
        other_daemonsets.before(cluster, "worker1")


def test_one_of_the_same_name_that_names_its_nodes_itself_has_others(cluster):
    cluster.add(OWN, "theirs", "worker2", by_label=False)
    assert other_daemonsets.before(cluster, "worker1") == []
