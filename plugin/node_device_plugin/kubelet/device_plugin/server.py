"""The DevicePlugin service (v1beta1) of one resource, which the kubelet calls."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, NoReturn, Protocol

from ...declaration import Device, Resource
from ...devices.commands import pre_start
from ...devices.table import DeviceTable
from ...support.channels import grpc
from ...telemetry import metrics
from ...telemetry.logs import Log
from ...wire import device_plugin_v1beta1_pb2 as api
from ...wire import device_plugin_v1beta1_pb2_grpc as api_grpc
from .allocation import allocate
from .device_list import DeviceList, Listed, NotAllocatable
from .preference import preferred

log = Log(__name__)

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
#: Seconds after a change in which the server collects further changes for one message. The kubelet
#: syncs its checkpoint to disk for each message.
COALESCE = 1.0


class Stream:
    """Tracks whether the kubelet has its ListAndWatch stream open."""

    def __init__(self) -> None:
        #: Ends the stream; None while the stream is closed.
        self._end: asyncio.Future[None] | None = None
        self._opened_at = 0.0
        self._changed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return self._end is not None

    @property
    def age(self) -> float | None:
        """Seconds since the stream was opened; None while it is closed."""
        return time.monotonic() - self._opened_at if self.is_open else None

    @contextlib.contextmanager
    def opened(self) -> Iterator[asyncio.Future[None]]:
        """Mark a stream as open in this block. The caller leaves once the future is done.

        Ends an older stream: its kubelet has gone, or the kubelet reads only the newer stream. If the
        older stream stayed open, the plugin would not notice the end of the newer stream.
        """
        self.end()
        end = asyncio.get_running_loop().create_future()
        self._opened_at = time.monotonic()
        self._end = end
        self._tell()
        try:
            yield end
        finally:
            if self._end is end:
                self._end = None
                self._tell()

    def end(self) -> None:
        """End the stream, so that the kubelet notices at once and a server can stop."""
        if self._end is not None and not self._end.done():
            self._end.set_result(None)

    async def wait_until(self, is_open: bool) -> None:
        """Return as soon as the stream is open (``is_open``) or closed."""
        while self.is_open != is_open:
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def options(resource: Resource) -> api.DevicePluginOptions:
    """The plugin options of a resource, which the kubelet reads only at a registration.

    With device_nodes, the kubelet gives a restarting container the same path, which may lead to another device by then.
    """
    return api.DevicePluginOptions(
        pre_start_required=bool(resource.pre_start.command) or resource.injection == "device_nodes",
        get_preferred_allocation_available=resource.preference is not None,
    )


class Keeper(Protocol):
    """Learns what containers get, and whether they still would get the same devices."""

    def allocated(self, resource: Resource, kubelet_ids: Sequence[str]) -> None:
        """Note that a container gets the shares with these ids. Never waits."""

    async def why_changed(
        self, resource: Resource, devices: Sequence[Device], kubelet_ids: Sequence[str]
    ) -> str | None:
        """Why a container that was given these devices by their paths would get other devices now; None if it would
        not."""


class DevicePluginServer(api_grpc.DevicePluginServicer):
    """Lists and allocates the devices of one table. keeper: learns of each Allocate, and may refuse a start."""

    def __init__(self, table: DeviceTable, coalesce: float = COALESCE, keeper: Keeper | None = None) -> None:
        self.offered = DeviceList(table)
        self.stream = Stream()
        self._coalesce = coalesce
        self._keeper = keeper

    @property
    def resource(self) -> Resource:
        """The resource with every device that is or was on this node."""
        return self.offered.table.resource

    async def GetDevicePluginOptions(self, request: api.Empty, context: Any) -> api.DevicePluginOptions:
        """The options. The kubelet calls this while it handles Register. It ignores the options in that request."""
        return options(self.resource)

    async def ListAndWatch(self, request: api.Empty, context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        """Send the devices now and after changes, with COALESCE seconds between two changes."""
        # gRPC cancels this coroutine as soon as the kubelet disconnects.
        with self.stream.opened() as end:
            last: tuple[Listed, ...] | None = None
            repeats = self.offered.repeats
            while True:
                change = asyncio.ensure_future(self.offered.changed(last, repeats))
                if not await _first(change, end):
                    return
                repeats = self.offered.repeats
                is_change, last = last is not None, change.result()
                yield api.ListAndWatchResponse(devices=map(_device, last))
                if is_change and not await _first(asyncio.ensure_future(asyncio.sleep(self._coalesce)), end):
                    return

    async def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, context: Any
    ) -> api.PreferredAllocationResponse:
        """Choose by the preference. Never fails, because the kubelet would then reject the pod."""
        return api.PreferredAllocationResponse(
            container_responses=[
                api.ContainerPreferredAllocationResponse(
                    deviceIDs=preferred(
                        self.resource,
                        asked.available_deviceIDs,
                        asked.must_include_deviceIDs,
                        asked.allocation_size,
                    )
                )
                for asked in request.container_requests
            ]
        )

    async def PreStartContainer(
        self, request: api.PreStartContainerRequest, context: Any
    ) -> api.PreStartContainerResponse:
        """Check the devices, then run the command.

        FAILED_PRECONDITION: the path that the kubelet gives again leads to another device now, or the command failed.
        NOT_FOUND: an unknown id.
        """
        resource = self.resource
        try:
            devices = self.offered.devices_of(request.devices_ids)
            if resource.injection == "device_nodes" and self._keeper:
                changed = await self._keeper.why_changed(resource, devices, request.devices_ids)
                if changed is not None:
                    raise NotAllocatable(grpc.StatusCode.FAILED_PRECONDITION, f"{resource.name}: {changed}")
        except NotAllocatable as error:
            await self._refuse(context, "to start a container", error)
        problem = await pre_start(resource, devices)
        if problem is not None:
            log.error("a container cannot start, because pre_start failed", resource=resource.name, error=problem)
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"{resource.name}: pre_start failed: {problem}")
        return api.PreStartContainerResponse()

    async def Allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        """Answer for each container, or fail with the code of NotAllocatable."""
        resource, result, started = self.resource.name, "error", time.perf_counter()
        try:
            answers = [allocate(self.offered, list(asked.devices_ids)) for asked in request.container_requests]
            result = "ok"
            if self._keeper:
                for asked in request.container_requests:
                    self._keeper.allocated(self.resource, asked.devices_ids)
        except NotAllocatable as error:
            result = error.code.name.lower()
            await self._refuse(context, "to allocate", error)
        finally:
            metrics.ALLOCATIONS.increment(resource, result)
            metrics.ALLOCATION_SECONDS.observe(time.perf_counter() - started, resource)
        # Log after the answer, because the admission of pods waits for the answer.
        asyncio.get_running_loop().call_soon(_tell, resource, request, answers)
        return api.AllocateResponse(container_responses=answers)

    async def _refuse(self, context: Any, what: str, error: NotAllocatable) -> NoReturn:
        log.error("refused a request", resource=self.resource.name, request=what, error=error)
        await context.abort(error.code, str(error))
        raise AssertionError("abort raises")


def _tell(resource: str, request: api.AllocateRequest, answers: list[api.ContainerAllocateResponse]) -> None:
    """Log the devices and edits that each container got."""
    for asked, answer in zip(request.container_requests, answers):
        given = [device.name for device in answer.cdi_devices] + [node.host_path for node in answer.devices]
        given += [mount.host_path for mount in answer.mounts] + sorted(answer.envs) + sorted(answer.annotations)
        log.info("allocated devices", resource=resource, devices=sorted(asked.devices_ids), given=given)


def _device(entry: Listed) -> api.Device:
    device = api.Device(ID=entry.kubelet_id, health=HEALTHY if entry.healthy else UNHEALTHY)
    if entry.numa_node is not None:
        device.topology.nodes.add(ID=entry.numa_node)
    return device


async def _first(awaited: asyncio.Future[Any], end: asyncio.Future[None]) -> bool:
    """Wait for ``awaited``. Returns False if the stream must end first."""
    try:
        await asyncio.wait([awaited, end], return_when=asyncio.FIRST_COMPLETED)
    finally:
        awaited.cancel()
    return not end.done()
