"""What the kubelet says about devices: who holds which, and which can be given out (PodResources v1)."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..support.channels import UnixClient, grpc
from ..wire import pod_resources_v1_pb2 as pod_resources
from ..wire import pod_resources_v1_pb2_grpc as pod_resources_grpc

if TYPE_CHECKING:
    from ..wire.pod_resources_v1_pb2_grpc import PodResourcesListerAsyncStub

#: Below the kubelet's root directory, which --root-dir moves.
SOCKET = "/var/lib/kubelet/pod-resources/kubelet.sock"
#: Seconds that an answer may take.
_TIMEOUT = 10.0
#: Seconds for which a kubelet is asked again that refuses a question by its rate limit (100 a second, of all who ask);
#: between two questions, first and at most.
_LIMITED = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
#: How the kubelet words that. gRPC says RESOURCE_EXHAUSTED of an answer that is too large, too.
_RATE_LIMIT = "rate limit"

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class PodResourcesError(Exception):
    """The kubelet did not answer. socket: its path. code, details: gRPC's own words.

    is_limited: whether it answers, and has too many questions from others.
    """

    def __init__(self, socket: str, attempted: str, code: grpc.StatusCode, details: str) -> None:
        self.socket = socket
        self.code = code
        self.details = details
        self.is_limited = code == grpc.StatusCode.RESOURCE_EXHAUSTED and _RATE_LIMIT in details
        why = (
            "others ask it more than 100 times a second"
            if self.is_limited
            else "is it running, and is this its root directory?"
        )
        super().__init__(f"the kubelet at {socket} could not {attempted}: {code.name}: {details} ({why})")


class Holder(NamedTuple):
    """A container that holds devices of one resource; device_ids are sorted."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


class Pods(NamedTuple):
    """The pods that a kubelet lists, and who of them holds which devices, sorted."""

    number: int
    holders: list[Holder]


class PodResourcesClient(UnixClient):
    """One connection to the kubelet: ``async with PodResourcesClient() as kubelet``. Raises PodResourcesError.

    socket: the path of the kubelet's socket. The kubelet serves at most 100 queries a second; a question that it
    refuses for that is asked again.
    """

    def __init__(self, socket: str = SOCKET) -> None:
        super().__init__(socket)

    @property
    def _lister(self) -> PodResourcesListerAsyncStub:
        return pod_resources_grpc.PodResourcesListerStub(self._channel)

    async def holders(self) -> list[Holder]:
        """Who holds which devices, sorted; containers without devices are left out."""
        return (await self.pods()).holders

    async def pods(self) -> Pods:
        """How many pods there are, and who holds which devices.

        A pod that has ended holds nothing, and is not told of by kubelets from 1.34 on.
        """
        answer = await self._call("list pods", self._lister.List, pod_resources.ListPodResourcesRequest())
        held: dict[tuple[str, str, str, str], set[str]] = {}
        for pod in answer.pod_resources:
            for container in pod.containers:
                # The kubelet has an entry for each device (and NUMA node), not for each resource.
                for devices in container.devices:
                    key = (pod.namespace, pod.name, container.name, devices.resource_name)
                    held.setdefault(key, set()).update(devices.device_ids)
        holders = [Holder(*key, device_ids=tuple(sorted(ids))) for key, ids in sorted(held.items())]
        return Pods(len(answer.pod_resources), holders)

    async def allocatable(self) -> dict[str, tuple[str, ...]]:
        """Resource to the ids of its healthy devices, held or free, sorted.

        A resource without healthy devices is left out: only the checkpoint shows it (see kubelet_checkpoint).
        """
        request = pod_resources.AllocatableResourcesRequest()
        answer = await self._call("list allocatable devices", self._lister.GetAllocatableResources, request)
        ids: dict[str, set[str]] = {}
        for devices in answer.devices:
            ids.setdefault(devices.resource_name, set()).update(devices.device_ids)
        return {resource: tuple(sorted(members)) for resource, members in sorted(ids.items())}

    async def _call(
        self, what: str, method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response], request: _Request
    ) -> _Response:
        until, pause = time.monotonic() + _LIMITED, _FIRST_PAUSE
        while True:
            try:
                return await method(request, timeout=_TIMEOUT)
            except grpc.aio.AioRpcError as error:
                refusal = PodResourcesError(self.socket, what, error.code(), error.details() or "")
                if not refusal.is_limited or time.monotonic() > until:
                    raise refusal from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)
