"""A client for the kubelet's PodResources API (v1): the holders of devices, and the allocatable devices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from ..support.channels import UnixClient, grpc
from ..wire import pod_resources_v1_pb2 as pod_resources
from ..wire import pod_resources_v1_pb2_grpc as pod_resources_grpc

#: Maximum seconds for an answer.
_TIMEOUT = 10.0
#: Maximum seconds to retry a call that the kubelet's rate limit refuses (100 calls a second from
#: all clients together). Below: the first and the longest pause between two tries, in seconds.
_LIMITED = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
#: Text of the kubelet's rate limit error. gRPC also reports an oversized answer as
#: RESOURCE_EXHAUSTED.
_RATE_LIMIT = "rate limit"

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class PodResourcesError(Exception):
    """A call to the kubelet failed. socket: the socket's path. code, details: as gRPC reports them.

    is_limited: whether the kubelet's rate limit refused the call.
    """

    def __init__(self, socket: str, attempted: str, code: grpc.StatusCode, details: str) -> None:
        self.socket = socket
        self.code = code
        self.details = details
        self.is_limited = code == grpc.StatusCode.RESOURCE_EXHAUSTED and _RATE_LIMIT in details
        why = (
            "all clients together send more than 100 requests a second: retry later"
            if self.is_limited
            else "check that the kubelet runs, and that its --root-dir is the directory above pod-resources"
        )
        super().__init__(f"the kubelet at {socket} could not {attempted}: {code.name}: {details} ({why})")


class Holder(NamedTuple):
    """A container that holds devices of one resource; device_ids are sorted."""

    namespace: str
    pod: str
    container: str
    resource: str
    device_ids: tuple[str, ...]


class Claimed(NamedTuple):
    """A device that a container has by a claim (DRA). claim: ``namespace/name``. driver, pool, device: as in slices."""

    namespace: str
    pod: str
    container: str
    claim: str
    driver: str
    pool: str
    device: str


class Listing(NamedTuple):
    """The pods and devices that a running kubelet lists.

    pods: their number. holders: the containers with devices, sorted. containers: namespace, pod and name of each listed
    container, also without devices. claimed: the CDI names of the devices that a container has by claims (DRA), for
    each container with such a device. claims: these devices. allocatable: resource to the ids of its healthy devices.
    checkpointed: the resources in the kubelet's checkpoint, also without a device. The checkpoint may be late: of
    several registrations at the same time, it may miss one until the kubelet's next write.
    """

    pods: int
    holders: list[Holder]
    containers: frozenset[tuple[str, str, str]] = frozenset()
    claimed: Mapping[tuple[str, str, str], frozenset[str]] = MappingProxyType({})
    claims: tuple[Claimed, ...] = ()
    allocatable: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    checkpointed: frozenset[str] = frozenset()

    def knows(self, resource: str, is_registered: bool | None) -> bool:
        """Whether the kubelet knows a resource, also without a device.

        is_registered: as the running plugin says; None if it says nothing of the resource, which alone then depends on
        the checkpoint.
        """
        by_plugin = resource in self.checkpointed if is_registered is None else is_registered
        return by_plugin or resource in self.allocatable

    def held(self, resource: str) -> dict[str, str]:
        """The held ids of a resource, each with its ``namespace/pod``."""
        return {
            device: f"{holder.namespace}/{holder.pod}"
            for holder in self.holders
            if holder.resource == resource
            for device in holder.device_ids
        }


class PodResourcesClient(UnixClient):
    """One connection to the kubelet: ``async with PodResourcesClient(socket) as kubelet``. Raises PodResourcesError.

    socket: the path of the kubelet's socket. The kubelet serves at most 100 calls a second.
    If this limit refuses a call, the client retries the call.
    """

    async def holders(self) -> list[Holder]:
        """The containers that hold devices, sorted."""
        return (await self.pods()).holders

    async def pods(self) -> Listing:
        """The pods, without the allocatable devices.

        An ended pod holds no device. Kubelets from 1.34 on do not list ended pods.
        """
        lister = pod_resources_grpc.PodResourcesListerStub(self._channel)
        answer = await self._call("list pods", lister.List, pod_resources.ListPodResourcesRequest())
        held: dict[tuple[str, str, str, str], set[str]] = {}
        claimed, claims = {}, []
        for pod in answer.pod_resources:
            for container in pod.containers:
                # The kubelet lists one entry per device (and NUMA node), not per resource.
                for devices in container.devices:
                    key = (pod.namespace, pod.name, container.name, devices.resource_name)
                    held.setdefault(key, set()).update(devices.device_ids)
                place = pod.namespace, pod.name, container.name
                by_claims = [(claim, each) for claim in container.dynamic_resources for each in claim.claim_resources]
                names = frozenset(name.name for _claim, each in by_claims for name in each.cdi_devices)
                if names:
                    claimed[place] = names
                claims += [
                    Claimed(
                        *place,
                        f"{claim.claim_namespace}/{claim.claim_name}",
                        each.driver_name,
                        each.pool_name,
                        each.device_name,
                    )
                    for claim, each in by_claims
                ]
        holders = [Holder(*key, device_ids=tuple(sorted(ids))) for key, ids in sorted(held.items())]
        containers = {(pod.namespace, pod.name, each.name) for pod in answer.pod_resources for each in pod.containers}
        return Listing(len(answer.pod_resources), holders, frozenset(containers), claimed, tuple(sorted(claims)))

    async def allocatable(self) -> dict[str, tuple[str, ...]]:
        """Resource to the ids of its healthy devices, held or free, sorted.

        The kubelet omits a resource without healthy devices. Only the checkpoint shows the resource
        (see checkpoint).
        """
        lister = pod_resources_grpc.PodResourcesListerStub(self._channel)
        request = pod_resources.AllocatableResourcesRequest()
        answer = await self._call("list allocatable devices", lister.GetAllocatableResources, request)
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
