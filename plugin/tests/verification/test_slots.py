"""How many pods a node takes: its cluster knows, and else the kubelet's own list."""

from typing import Any, Optional

import pytest

from node_device_plugin.cluster.api import ApiError, Place
from node_device_plugin.cluster.pods import Slots
from node_device_plugin.verification import slots
from node_device_plugin.verification.slots import SlotCounter


class Cluster:
    """As a kubelet sees it: who it is, its own node, and the pods that are bound there."""

    def __init__(self, user: str, pods: list[str]) -> None:
        self.user = user
        self.phases = pods
        self.away: Optional[ApiError] = None
        self.asked = 0

    def create(self, place: Place, content: dict[str, Any]) -> dict[str, Any]:
        self.asked += 1
        if self.away:
            raise self.away
        assert place.path == "/apis/authentication.k8s.io/v1/selfsubjectreviews"
        assert content["kind"] == "SelfSubjectReview"
        return {"status": {"userInfo": {"username": self.user}}}

    def node(self, name: str) -> dict[str, Any]:
        assert name == "worker1"
        return {"metadata": {"name": name}, "status": {"capacity": {"pods": "110"}, "allocatable": {"pods": "10"}}}

    def list(self, place: Place, **selectors: str) -> list[dict[str, Any]]:
        # The Node authorizer lets a kubelet list its own pods alone.
        assert (place.path, selectors) == ("/api/v1/pods", {"fieldSelector": "spec.nodeName=worker1"})
        return [{"status": {"phase": phase}} for phase in self.phases]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster("system:node:worker1", ["Running", "Pending", "Succeeded", "Failed", "Running"])
    monkeypatch.setattr(slots.Api, "of", lambda path: made)
    return made


async def test_the_cluster_counts_unfinished_pods_of_the_node(cluster: Cluster) -> None:
    assert await SlotCounter("/kubelet.conf", 50).count(7) == Slots(10, 7)
    cluster.phases = ["Running"] * 11
    assert await SlotCounter("/kubelet.conf", None).count(7) == Slots(10, 0)


async def test_a_cluster_that_does_not_answer_is_asked_once(cluster: Cluster) -> None:
    cluster.away = ApiError("it does not answer")
    counter = SlotCounter("/kubelet.conf", 50)
    assert [await counter.count(7), await counter.count(49), cluster.asked] == [Slots(50, 43), Slots(50, 1), 1]


async def test_somebody_elses_credentials_say_nothing(cluster: Cluster) -> None:
    cluster.user = "admin"
    assert await SlotCounter("/admin.conf", 50).count(7) == Slots(50, 43)


async def test_without_a_cluster_the_kubelets_list_and_configuration_tell() -> None:
    assert await SlotCounter(None, 110).count(3) == Slots(110, 107)
    assert await SlotCounter("/none.conf", 110).count(200) == Slots(110, 0)
    unknown = await SlotCounter(None, None).count(3)
    assert unknown == "the node's pod slots are unknown: neither the API server nor maxPods of the kubelet gives them"
