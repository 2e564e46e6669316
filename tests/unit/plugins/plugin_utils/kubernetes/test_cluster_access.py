"""What a run would remove from a node object."""

from __future__ import annotations

import json
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import extended_resources
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import ApiError
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import cluster_access

OF_KUBELET = {"f:status": {"f:capacity": {"f:a.b/camera": {}, "f:a.b/gone": {}, "f:c.d/others": {}}}}
NODE = {
    "metadata": {
        "annotations": {
            extended_resources.ANNOTATION: json.dumps(
                {"patched": {"a.b/seat": None}, "served": ["a.b/camera", "a.b/gone"]}
            )
        },
        "managedFields": [{"manager": "kubelet", "subresource": "status", "fieldsV1": OF_KUBELET}],
    },
    "status": {
        "capacity": {"a.b/camera": "2", "a.b/gone": "2", "a.b/seat": "9", "c.d/others": "1"},
        # The kubelet still lists a resource that an earlier run removed.
        "allocatable": {"a.b/camera": "2", "a.b/gone": "0", "a.b/seat": "9", "c.d/others": "1"},
    },
}


@pytest.mark.parametrize(
    ("capacities", "served", "removed"),
    [
        ({"a.b/seat": 9}, None, set()),
        ({}, None, {"a.b/seat"}),
        ({}, [], {"a.b/seat", "a.b/camera"}),
        ({"a.b/seat": 9}, ["a.b/camera"], set()),
        ({"a.b/camera": 2}, [], {"a.b/seat"}),
    ],
)
def test_what_a_run_removes(monkeypatch, capacities, served, removed):
    monkeypatch.setattr(
        cluster_access.Api, "of", lambda _path, dry_run=False: types.SimpleNamespace(node=lambda name: NODE)
    )
    assert cluster_access.removed("x", "worker1", capacities, served) == removed


def test_without_the_node_object_nothing_is_known(monkeypatch):
    def node(name):
        raise ApiError("no answer")

    monkeypatch.setattr(cluster_access.Api, "of", lambda _path, dry_run=False: types.SimpleNamespace(node=node))
    assert cluster_access.removed("x", "worker1", {}) == set()
