"""A kubelet that has too much to do, as PodResources' client meets it."""

from pathlib import Path

import pytest

from node_device_plugin.kubelet import pod_resources
from node_device_plugin.kubelet.pod_resources import PodResourcesClient, PodResourcesError
from node_device_plugin.support.channels import grpc, unix_server
from node_device_plugin.wire import pod_resources_v1_pb2 as messages
from node_device_plugin.wire import pod_resources_v1_pb2_grpc as services

#: The kubelet's own words (podresources.ErrorLimitExceeded).
LIMIT = "rejected by rate limit"


class Busy(services.PodResourcesListerServicer):
    """Refuses the first calls with these words, then answers."""

    def __init__(self, refusals: list[str]) -> None:
        self.refusals = refusals
        self.calls = 0

    async def List(self, request: object, context: grpc.aio.ServicerContext) -> messages.ListPodResourcesResponse:
        self.calls += 1
        if self.refusals:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self.refusals.pop(0))
        return messages.ListPodResourcesResponse(pod_resources=[messages.PodResources(name="p", namespace="n")])


async def pods(short_path: Path, kubelet: Busy) -> int:
    path = str(short_path / "kubelet.sock")

    def add(server: grpc.aio.Server) -> None:
        services.add_PodResourcesListerServicer_to_server(kubelet, server)

    async with unix_server(path, add), PodResourcesClient(path) as client:
        await client.holders()
    return kubelet.calls


async def test_the_kubelets_rate_limit_is_waited_for(short_path: Path) -> None:
    assert await pods(short_path, Busy([LIMIT] * 4)) == 5


async def test_a_limit_that_never_ends_is_named(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_resources, "_LIMITED", 0.2)
    with pytest.raises(PodResourcesError, match="all clients together send more than 100 requests a second") as refused:
        await pods(short_path, Busy([LIMIT] * 1000))
    assert "check that the kubelet runs" not in str(refused.value)


async def test_an_answer_that_is_too_large_is_not_asked_for_again(short_path: Path) -> None:
    kubelet = Busy(["Received message larger than max (9 vs. 4)"] * 2)
    with pytest.raises(PodResourcesError, match="larger than max"):
        await pods(short_path, kubelet)
    assert kubelet.calls == 1
