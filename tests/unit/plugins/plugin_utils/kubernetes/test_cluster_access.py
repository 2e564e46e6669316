"""What the API server is asked before a run, and what the run would remove from a node object."""

from __future__ import annotations

import json

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import extended_resources
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import ApiError
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import asked, declaration
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
    ("capacities", "served", "api_only", "removed"),
    [
        ({"a.b/seat": 9}, [], False, set()),
        ({}, [], False, {"a.b/seat"}),
        ({}, ["a.b/seat"], False, {"a.b/seat"}),
        ({}, [], True, {"a.b/seat", "a.b/camera"}),
        ({"a.b/seat": 9}, ["a.b/camera"], True, set()),
        ({}, ["a.b/camera", "a.b/seat"], True, set()),
        ({"a.b/camera": 2}, [], True, {"a.b/seat"}),
    ],
)
def test_what_a_run_removes(capacities, served, api_only, removed):
    declared = {"capacities": capacities, "resources": [{"name": name} for name in served]}
    assert cluster_access.removed(NODE, declared, api_only) == removed


def test_of_a_damaged_record_nothing_is_known():
    node = {"metadata": {"annotations": {extended_resources.ANNOTATION: "{"}}}
    assert cluster_access.removed(node, {"capacities": {}, "resources": []}, False) == set()


def test_without_a_kubeconfig_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(cluster_access.Api, "of", None)
    assert cluster_access.ask(asked.parse({}, None, "worker1"), api_only=True) == ([], [], [], set())


def test_an_api_server_that_does_not_answer_is_a_problem_of_the_kubeconfig(monkeypatch):
    def of(_path, dry_run):
        raise ApiError("the API server\ndoes not answer")

    monkeypatch.setattr(cluster_access.Api, "of", of)
    answer = cluster_access.ask(asked.parse({"kubeconfig": "/a"}, None, "worker1"), api_only=False)
    assert answer == (["node_devices_kubeconfig (/a): the API server does not answer"], [], [], set())


@pytest.mark.parametrize(
    ("dra", "problems"), [({"name": "d.example.com"}, ["node_devices_kubeconfig (/a): no"]), ({}, [])]
)
def test_the_right_to_keep_device_classes_matters_only_with_dra(monkeypatch, dra, problems):
    class Server:
        """Has the node, and lists no DeviceClass."""

        def node(self, name):
            return {"metadata": {"name": name}}

        def list(self, place, **_selectors):
            raise ApiError("no")

    monkeypatch.setattr(cluster_access.Api, "of", lambda _path, dry_run: Server())
    declared = {**declaration.read({}, lambda value: value).as_data(), "dra": dra}
    assert cluster_access.ask(asked.parse({"kubeconfig": "/a"}, declared, "w1"), api_only=False).problems == problems


@pytest.mark.parametrize("refused", ["", "clusterroles", "validatingadmissionpolicies", "deviceclasses"])
@pytest.mark.parametrize("mode", ["service", "daemonset"])
def test_whoever_deploys_a_dra_driver_must_be_able_to_give_its_rights(monkeypatch, mode, refused):
    class Server:
        """Has the node, and refuses to create one kind."""

        def node(self, name):
            return {"metadata": {"name": name}}

        def list(self, place, **_selectors):
            return []

        def create(self, place, content):
            assert content["metadata"]["generateName"] == "nodedevices-trial-"
            if place.kinds == refused:
                raise ApiError(f"no {refused}")

    monkeypatch.setattr(cluster_access.Api, "of", lambda _path, dry_run: Server() if dry_run else None)
    monkeypatch.setattr(cluster_access.deployed, "without_slot", lambda *_given: "")
    declared = {**declaration.read({}, lambda value: value).as_data(), "dra": {"name": "d.example.com"}}
    options = {"kubeconfig": "/a", "mode": mode, "deployment": {"name": "gpu"}}
    problems = cluster_access.ask(asked.parse(options, declared, "w1"), api_only=False).problems
    is_refused = refused == "deviceclasses" or (refused and mode == "daemonset")
    assert problems == [f"node_devices_kubeconfig (/a): no {refused}"] * bool(is_refused)


def test_a_class_of_others_with_the_name_of_a_resource_is_a_problem_before_the_run(monkeypatch):
    class Server:
        """Has the node, and a DeviceClass of others."""

        def node(self, name):
            return {"metadata": {"name": name}}

        def list(self, place, **_selectors):
            spec = {"extendedResourceName": "a.b/camera"}
            return [{"metadata": {"name": "theirs"}, "spec": spec}]

        def create(self, place, content):
            pass

    monkeypatch.setattr(cluster_access.Api, "of", lambda _path, dry_run: Server())
    resources = [{"name": "a.b/camera", "api": "dra"}, {"name": "a.b/plain", "api": "device_plugin"}]
    declared = {**declaration.read({}, lambda value: value).as_data(), "dra": {"name": "d"}, "resources": resources}
    (problem,) = cluster_access.ask(asked.parse({"kubeconfig": "/a"}, declared, "w1"), api_only=False).problems
    assert problem.startswith("deviceclass camera.a.b cannot have the extendedResourceName a.b/camera, because")
    declared["resources"] = resources[1:]
    assert cluster_access.ask(asked.parse({"kubeconfig": "/a"}, declared, "w1"), api_only=False).problems == []


@pytest.mark.parametrize(("kubelet", "is_refused"), [("v1.35.6", True), ("v1.36.0-rc.0", False), ("", False)])
def test_a_kubelet_that_would_start_pods_without_their_devices_is_refused(kubelet, is_refused):
    class Server:
        """Has a DeviceClass of ours."""

        def list(self, place, **_selectors):
            labels = {"app.kubernetes.io/managed-by": "nodedevices"}
            return [
                {"metadata": {"name": "camera.a.b", "labels": labels}, "spec": {"extendedResourceName": "a.b/camera"}}
            ]

        def create(self, place, content):
            pass

    node = {"metadata": {"name": "w1"}, "status": {"nodeInfo": {"kubeletVersion": kubelet}}}
    declared = {"dra": {"name": "d"}, "resources": [{"name": "a.b/camera", "api": "dra"}]}
    problems = cluster_access.require_dra(Server(), declared, None, node)
    assert [each.partition(" starts pods without the devices of a.b/camera ")[0] for each in problems] == [
        f"kubelet {kubelet}"
    ] * is_refused
