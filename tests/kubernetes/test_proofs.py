"""Proofs on a real API server: class and pods as it admits them, and the slots of a node as its kubelet sees them."""

from __future__ import annotations

import contextlib
import itertools
import urllib.error

import pytest
import stand_in
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError, Place
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import objects, proof

from node_device_plugin.cluster.pods import Slots
from node_device_plugin.verification.slots import SlotCounter

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

PODS = "/api/v1/namespaces/default/pods"
NO_TOKEN = {"automountServiceAccountToken": False}
_numbers = itertools.count()


@pytest.fixture
def namespace(cluster):
    """A new one, with what a controller makes in it where one runs."""
    name = f"proofs-{next(_numbers)}"
    cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    account = {"metadata": {"name": "default"}}
    cluster.ask("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account)
    return name


@pytest.fixture
def api(cluster, namespace):
    api = Api(kubeconfig.read(cluster.kubeconfig()))
    yield api
    proof.remove(api, [namespace], "worker1")


@pytest.fixture
def prove(api, namespace):
    """Prove a resource; nobody schedules here, so its pod waits. prove(**) gives what became of it."""

    def run(**kind):
        kind = proof.Kind(namespace, "pause:1", ({"operator": "Exists"},), **kind)
        wanted = proof.Wanted("a.example/b", 1, ("seen", "/dev/x"))
        return proof.Proofs(api, kind, "worker1", 0.1).prove([wanted], lambda pods: {})["a.example/b"]

    return run


def test_a_proofs_pod_is_below_all_others_and_takes_no_place(api, namespace, prove, monkeypatch):
    seen = []
    does = api.create

    def create(place, content):
        seen.append(does(place, content))
        return seen[-1]

    monkeypatch.setattr(api, "create", create)
    owner = {"metadata": {"name": "node-device-plugin", "uid": "00000000-0000-0000-0000-000000000001"}}
    outcome = prove(pull_secrets=("a",), owner=owner, ends=True)
    assert outcome == proof.Outcome(unproven="its pod is Pending after 0.1 s: no reason was reported")
    (pod,) = seen
    spec = pod["spec"]
    assert (spec["priority"], spec["preemptionPolicy"], spec["activeDeadlineSeconds"]) == (-1_000_000, "Never", 240)
    assert "nodeName" not in spec
    asked = spec["containers"][0]["resources"]
    assert asked["limits"] == {"memory": "96Mi", "a.example/b": "1"}
    # The API server adds the request of the device.
    assert (asked["requests"]["cpu"], asked["requests"]["memory"]) == ("10m", "32Mi")
    assert pod["metadata"]["ownerReferences"][0]["name"] == "node-device-plugin"
    assert api.list(Place("pods", namespace=namespace)) == []
    # The server's clock decides what is left of a killed play's proof.
    assert api.moment() is not None
    # Another proof finds the class as it is, and an uninstall takes it.
    assert objects.apply(api, proof._CLASS, proof.priority_class()).changed is False
    assert proof.remove(api.dry(), [namespace], "worker1").changed is True
    assert proof.remove(api, [namespace], "worker1").changed is True
    assert proof.remove(api, [namespace], "worker1").changed is False


def test_a_class_with_another_value_is_refused_and_a_policy_without_a_class_too(api, namespace, prove):
    """The message for a class that was made by hand; and why a proof has a class."""
    api.apply(proof._CLASS, {**proof.priority_class(), "value": -5})
    assert "may not be changed in an update" in prove().unproven
    spec = {"containers": [{"name": "a", "image": "a"}], "preemptionPolicy": "Never"}
    with pytest.raises(ApiError, match="the string value of PreemptionPolicy"):
        api.create(Place("pods", namespace=namespace), {"metadata": {"name": "a"}, "spec": spec})


async def test_a_kubelet_counts_the_slots_of_its_node(cluster):
    node = cluster.node({"cpu": "2", "pods": "3"}, stand_in.KUBELETS_NODE)
    path = cluster.kubeconfig({"token": "kubelet-token"})
    counter = SlotCounter(path, 50)
    # Another test may have made it.
    with contextlib.suppress(urllib.error.HTTPError):
        cluster.ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    try:
        with node.kubelet():
            node.version()
            assert await counter.count(7) == Slots(3, 3)
            for name in ("one", "two"):
                spec = {"nodeName": node.name, "containers": [{"name": "a", "image": "a"}]}
                cluster.ask("POST", PODS, {"metadata": {"name": name}, "spec": {**spec, **NO_TOKEN}})
            assert await counter.count(7) == Slots(3, 1)
            ended = {"status": {"phase": "Succeeded"}}
            cluster.ask("PATCH", f"{PODS}/one/status", ended, "application/merge-patch+json")
            assert await counter.count(7) == Slots(3, 2)
        # Whoever is no kubelet knows no node of its own.
        assert await SlotCounter(cluster.kubeconfig(), 50).count(7) == Slots(50, 43)
    finally:
        for name in ("one", "two"):
            cluster.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
        node.delete()
