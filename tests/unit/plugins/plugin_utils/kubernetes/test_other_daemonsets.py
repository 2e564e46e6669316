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
        self.daemon_sets, self.config_maps, self.labelled = [], {}, {}
        self.api = types.SimpleNamespace(
            list=self._list,
            get=lambda place: self.config_maps.get((place.namespace, place.name)),
        )
        self.add(OWN, "ours")

    def _list(self, place, labelSelector):
        if place.kinds == "daemonsets":
            return self.daemon_sets
        label = manifests.NODE_LABEL
        _labelled, others = labelSelector.split(f"{label},{label} notin ")
        values = [(name, value) for name, value in self.labelled.items() if value not in others.strip("()").split(",")]
        return [{"metadata": {"name": name, "labels": {label: value}}} for name, value in values]

    def add(self, name, namespace="ours", *nodes, selector=None):
        spec = {"template": {"spec": {"nodeSelector": selector or {manifests.NODE_LABEL: name}}}}
        self.daemon_sets.append({"metadata": {"namespace": namespace, "name": name}, "spec": spec})
        self.config_maps[namespace, name] = {"data": dict.fromkeys(nodes, "{}")}


@pytest.fixture
def cluster():
    return Cluster()


def test_a_node_that_goes_is_taken_out_where_the_playbooks_put_it(cluster):
    cluster.add("a", "ours", "worker1", "worker2")
    cluster.add("z", "theirs", "worker1")
    cluster.add("without", "ours", "worker2")
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


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ({"pool": "a"}, {"pool": "b"}, False),
        ({"pool": "a", "arch": "arm"}, {"pool": "b", "arch": "arm"}, False),
        ({"pool": "a"}, {"pool": "a"}, True),
        ({"pool": "a"}, {"pool": "a", "arch": "arm"}, True),
        ({"pool": "a"}, {"arch": "arm"}, True),
        # A cloud marks a pool with an empty value, too.
        ({"pool": ""}, {"pool": "a"}, False),
        ({"pool": ""}, {"other": ""}, True),
        ({manifests.NODE_LABEL: "a"}, {"pool": "a"}, False),
        ({manifests.NODE_LABEL: "a"}, {manifests.NODE_LABEL: "b"}, False),
        ({manifests.NODE_LABEL: "a"}, {manifests.NODE_LABEL: "a"}, True),
    ],
)
def test_different_values_of_one_label_are_disjoint(one, other, overlap):
    assert other_daemonsets.may_overlap(one, other) is overlap
    assert other_daemonsets.may_overlap(other, one) is overlap


def test_labels_of_a_pool_that_another_daemonset_may_select_are_refused(cluster):
    cluster.add("named", "ours")
    cluster.add("gpu", "theirs", selector={"pool": "gpu", "zone": "a"})
    cluster.deployment.node_selector = {"arch": "arm"}
    with pytest.raises(DeploymentError) as caught:
        other_daemonsets.before(cluster)
    assert str(caught.value) == (
        "device_plugin_deployment.node_selector: a node may have these labels and those of DaemonSet gpu in namespace "
        "theirs (pool=gpu, zone=a), and would then get two plugins: select different values of one label"
    )
    cluster.deployment.node_selector = {"arch": "arm", "pool": "arm"}
    other_daemonsets.before(cluster)
    # A DaemonSet that is being deleted has no new pods.
    cluster.daemon_sets[-1]["metadata"]["deletionTimestamp"] = "now"
    cluster.deployment.node_selector = {"arch": "arm"}
    other_daemonsets.before(cluster)


def test_a_label_that_names_no_daemonset_is_told_with_its_nodes(cluster):
    cluster.add("gpu")
    cluster.labelled = {"n1": OWN, "n2": "gpu", "n3": "gone", "n4": "gone", "n5": "other"}
    assert other_daemonsets.strays(cluster) == {"gone": ["n3", "n4"], "other": ["n5"]}
