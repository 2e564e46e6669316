"""The proof by a static pod: which container counts, and what does not prove a resource."""

from pathlib import Path
from typing import Any, List, Mapping, Sequence, cast

import pytest

from node_device_plugin.declaration import Device, Resource, parse_resources
from node_device_plugin.kubelet.pod_resources import Holder
from node_device_plugin.runtime.client import CriClient
from node_device_plugin.verification import proof_by_kubelet, static_pod
from node_device_plugin.verification.looking import Outcome
from node_device_plugin.wire import cri_v1_pb2 as api

NAME = "node-device-proof-0badcafe"


class Node:
    """A kubelet that gives ``ids`` to the proof's pod, and a runtime with its container."""

    def __init__(self) -> None:
        self.ids: Sequence[str] = ("l0", "l1")
        self.status = api.ContainerStatus(started_at=1)
        self.ends = False

    async def containers(self, labels: Mapping[str, str]) -> List[api.Container]:
        assert labels == {"io.kubernetes.container.name": static_pod.CONTAINER}
        return [api.Container(id="c", labels={"io.kubernetes.pod.name": NAME + "-node1"})]

    async def container_status(self, container: str) -> api.ContainerStatus:
        return self.status

    async def container_pid(self, container: str) -> int:
        return 7

    async def pod_sandboxes(self, _labels: object) -> List[api.PodSandbox]:
        return []

    async def __aenter__(self) -> "Node":
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is open."""

    async def holders(self) -> List[Holder]:
        return [Holder("kube-system", NAME + "-node1", "proof", "example.com/lamp", tuple(self.ids))]

    async def look(self, pid: int, _annotations: object, resource: Resource, devices: Sequence[Device]) -> Outcome:
        assert pid == 7
        if self.ends:
            raise ProcessLookupError("the container's process 7 has ended")
        return Outcome(tuple(device.id for device in devices), ())


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Node:
    made = Node()

    async def why(_name: str) -> str:
        return "; the kubelet's last words: no"

    monkeypatch.setattr(proof_by_kubelet, "PodResourcesClient", lambda _socket: made)
    monkeypatch.setattr(proof_by_kubelet, "look", made.look)
    monkeypatch.setattr(proof_by_kubelet, "_why", why)
    monkeypatch.setattr(static_pod, "new_name", lambda: NAME)
    return made


async def prove(node: Node, path: Path) -> Outcome:
    lamps: List[Mapping[str, Any]] = [{"name": "example.com/lamp", "devices": [{"id": "l0"}, {"id": "l1"}]}]
    (lamp,) = parse_resources(lamps)
    kubelet = proof_by_kubelet.Kubelet("/none", str(path), "pause", 0.0)
    return await proof_by_kubelet.prove(lamp, 2, cast(CriClient, node), kubelet)


async def test_a_container_that_shows_as_many_devices_as_it_asked_for_is_a_proof(node: Node, tmp_path: Path) -> None:
    assert await prove(node, tmp_path) == Outcome(("l0", "l1"), ())


@pytest.mark.parametrize("ids", [(), ("l0",), ("l0", "l1", "l2")])
async def test_too_few_devices_or_too_many_prove_nothing(node: Node, tmp_path: Path, ids: Sequence[str]) -> None:
    node.ids = ids
    assert await prove(node, tmp_path) == Outcome((), ("expected 2 devices allocated, found %d" % len(ids),))


@pytest.mark.parametrize("status", [{}, {"started_at": 1, "finished_at": 2}])
async def test_a_container_that_has_not_begun_or_has_ended_is_waited_for(
    node: Node, tmp_path: Path, status: Mapping[str, int]
) -> None:
    node.status = api.ContainerStatus(**status)
    says = "expected a container, found none after 0 s; the kubelet's last words: no"
    assert await prove(node, tmp_path) == Outcome((), (says,))


async def test_a_container_that_ends_while_it_is_looked_into_proves_nothing(node: Node, tmp_path: Path) -> None:
    node.ends = True
    says = "the container's process 7 has ended; the kubelet's last words: no"
    assert await prove(node, tmp_path) == Outcome((), (says,))
