"""Which nodes move from the device plugin to DRA or back, and when a node serves its resources as declared."""

from __future__ import annotations

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import NotFound
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import parse_configuration
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import device_classes, drain, migration
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.migration import Seen
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import Change, DeploymentError

CAMERA, POOL = "example.com/camera", "w1/camera.example.com"


def declared(api):
    camera = {"name": CAMERA, "api": api, "devices": [{"id": "a", "nodes": [{"path": "/dev/null"}]}]}
    return parse_configuration({"resources": [camera]})


@pytest.mark.parametrize(
    ("api", "capacity", "allocatable", "published", "moves"),
    [
        # As declared, and a node that serves nothing yet.
        ("dra", {}, {}, {POOL: 1}, False),
        ("device_plugin", {CAMERA: "1"}, {CAMERA: "1"}, {}, False),
        ("dra", {}, {}, {}, False),
        ("device_plugin", {}, {}, {}, False),
        # The other API, also while its devices are unhealthy.
        ("dra", {CAMERA: "1"}, {CAMERA: "1"}, {}, True),
        ("dra", {CAMERA: "1"}, {CAMERA: "0"}, {}, True),
        ("device_plugin", {}, {}, {POOL: 1}, True),
        ("device_plugin", {}, {}, {POOL: 0}, True),
        # Only half of a move.
        ("dra", {CAMERA: "1"}, {CAMERA: "1"}, {POOL: 1}, True),
        ("device_plugin", {CAMERA: "1"}, {CAMERA: "1"}, {POOL: 1}, True),
        # For 5 minutes after a move, the kubelet shows the former capacity.
        ("dra", {CAMERA: "1"}, {CAMERA: "0"}, {POOL: 1}, False),
        ("dra", {CAMERA: "1"}, {CAMERA: "0"}, {"w2/camera.example.com": 1}, True),
    ],
)
def test_a_node_moves_if_the_other_api_serves_a_resource(api, capacity, allocatable, published, moves):
    seen = Seen(capacity, allocatable, published)
    assert migration.moving("w1", declared(api), seen) == ([CAMERA] if moves else [])


@pytest.mark.parametrize(
    ("api", "allocatable", "published", "healthy", "words"),
    [
        ("dra", {}, {POOL: 1}, {CAMERA: 1}, []),
        ("dra", {CAMERA: "0"}, {POOL: 1}, None, []),
        ("dra", {CAMERA: "1"}, {POOL: 1}, {CAMERA: 1}, ["still shows 1"]),
        ("dra", {}, {}, {CAMERA: 1}, ["no ResourceSlice"]),
        ("dra", {}, {}, None, ["no ResourceSlice"]),
        ("dra", {}, {POOL: 0}, {CAMERA: 1}, ["no ResourceSlice"]),
        # All devices are unhealthy or absent.
        ("dra", {}, {POOL: 0}, {CAMERA: 0}, []),
        ("device_plugin", {CAMERA: "0"}, {}, {CAMERA: 0}, []),
        ("device_plugin", {CAMERA: "2"}, {}, {CAMERA: 2}, []),
        ("device_plugin", {CAMERA: "2"}, {}, None, []),
        ("device_plugin", {CAMERA: "2"}, {POOL: 0}, {CAMERA: 2}, ["ResourceSlices of the node still have"]),
        ("device_plugin", {CAMERA: "0"}, {}, {CAMERA: 2}, ["shows 0 instead of 2"]),
        ("device_plugin", {}, {POOL: 2}, None, ["still have", "shows no key instead of its devices"]),
    ],
)
def test_a_node_serves_as_declared_when_node_object_and_slices_agree(api, allocatable, published, healthy, words):
    found = list(migration.unfinished("w1", declared(api), Seen({}, allocatable, published), healthy))
    assert len(found) == len(words)
    for sentence, part in zip(found, words, strict=True):
        assert sentence.startswith(f"{CAMERA}: ")
        assert part in sentence


class Cluster:
    """A cluster whose API server knows slices, or does not."""

    def __init__(self, slices, annotations=None):
        self._slices, self._annotations = slices, annotations or {}

    def node(self, name):
        node = {"metadata": {"name": name, "annotations": self._annotations}, "spec": {"unschedulable": True}}
        return {**node, "status": {"allocatable": {CAMERA: "2"}}}

    def list(self, place, fieldSelector):
        assert (place.kinds, fieldSelector) == (
            "resourceslices",
            "spec.driver=nodedevices.kubernetes,spec.nodeName=w1",
        )
        if self._slices is None:
            raise NotFound("no")
        return self._slices


def test_what_the_cluster_shows_of_a_node():
    slices = [{"spec": {"pool": {"name": POOL}, "devices": [{}, {"taints": [{}]}]}}]
    seen = migration.look(Cluster(slices, {drain.ANNOTATION: "us"}), "w1", declared("dra"))
    assert seen == Seen({}, {CAMERA: "2"}, {POOL: 1}, True)


def test_a_cluster_without_dra_can_only_serve_by_the_device_plugin():
    assert migration.look(Cluster(None), "w1", declared("device_plugin")) == Seen({}, {CAMERA: "2"}, {})
    with pytest.raises(DeploymentError, match=r"^example\.com/camera: the cluster does not serve resource.k8s.io/v1"):
        migration.look(Cluster(None), "w1", declared("dra"))


def test_a_node_does_not_move_where_its_pods_could_not_follow(monkeypatch):
    place = str(device_classes.CLASSES._replace(name="camera.example.com"))
    named, nameless = {"extendedResourceName": CAMERA}, {"extendedResourceName": ""}
    changes = []
    asked = []
    monkeypatch.setattr(device_classes, "converge", lambda _api, uses: asked.extend(uses) or changes)
    for before, after, is_refused in ((None, nameless, True), (nameless, nameless, True), (nameless, named, False)):
        changes[:] = [Change(place, before, after)]
        # A node that does not move needs no name.
        migration.require_limits(None, "w1", declared("dra"), [])
        if is_refused:
            with pytest.raises(DeploymentError, match=r"only by ResourceClaims.*node_devices_pods_have_claims: true$"):
                migration.require_limits(None, "w1", declared("dra"), [CAMERA])
        else:
            migration.require_limits(None, "w1", declared("dra"), [CAMERA])
        migration.require_limits(None, "w1", declared("device_plugin"), [CAMERA])
    assert asked == [device_classes.Use("w1", frozenset([CAMERA]), "nodedevices.kubernetes")] * 3
