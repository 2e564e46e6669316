"""The DevicePlugin service of one resource, as the kubelet calls it (v1beta1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from typing import Any, AsyncIterator, Iterator, Optional, Set, Tuple

from .allocation import NotAllocatable, UnknownDevice, allocate
from .channels import grpc
from .device_table import DeviceTable, Listed
from .wire import device_plugin_v1beta1_pb2 as api
from .wire import device_plugin_v1beta1_pb2_grpc as api_grpc

log = logging.getLogger(__name__)

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
#: Seconds after a change in which further ones are sent as one: the kubelet syncs its checkpoint to disk for each.
COALESCE = 1.0


class Stream:
    """Whether the kubelet has its ListAndWatch stream open."""

    def __init__(self) -> None:
        self._ends: Set[asyncio.Future[None]] = set()
        self._opened_at = 0.0
        self._changed = asyncio.Event()

    @property
    def is_open(self) -> bool:
        return bool(self._ends)

    @property
    def age(self) -> Optional[float]:
        """Seconds since it was opened; None while it is not."""
        return time.monotonic() - self._opened_at if self._ends else None

    @contextlib.contextmanager
    def opened(self) -> Iterator[asyncio.Future[None]]:
        """A stream is open inside this block, which is to be left when the future that it gives is done."""
        end = asyncio.get_running_loop().create_future()
        self._opened_at = time.monotonic()
        self._ends.add(end)
        self._tell()
        try:
            yield end
        finally:
            self._ends.discard(end)
            self._tell()

    def end(self) -> None:
        """End it from our side, so that the kubelet knows at once, and a server need not wait when it stops."""
        for end in self._ends:
            if not end.done():
                end.set_result(None)

    async def wait_until(self, is_open: bool) -> None:
        """Return as soon as the stream is open, or closed."""
        while self.is_open != is_open:
            await self._changed.wait()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class DevicePlugin(api_grpc.DevicePluginServicer):
    """Lists and gives away the devices of one table."""

    def __init__(self, table: DeviceTable, coalesce: float = COALESCE) -> None:
        self.table = table
        self.stream = Stream()
        self._coalesce = coalesce

    async def GetDevicePluginOptions(self, request: api.Empty, context: Any) -> api.DevicePluginOptions:
        """Neither PreStartContainer nor GetPreferredAllocation is wanted. The kubelet asks inside its Register."""
        return api.DevicePluginOptions()

    async def ListAndWatch(self, request: api.Empty, context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        """The devices now and after each change, which goes out at once unless another one went just before it."""
        # Cancelled at once when the kubelet goes.
        with self.stream.opened() as end:
            last: Optional[Tuple[Listed, ...]] = None
            while True:
                change = asyncio.ensure_future(self.table.changed(last))
                if not await _first(change, end):
                    return
                is_change, last = last is not None, change.result()
                yield api.ListAndWatchResponse(
                    devices=[
                        api.Device(ID=entry.kubelet_id, health=HEALTHY if entry.healthy else UNHEALTHY)
                        for entry in last
                    ]
                )
                if is_change and not await _first(asyncio.ensure_future(asyncio.sleep(self._coalesce)), end):
                    return

    async def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, context: Any
    ) -> api.PreferredAllocationResponse:
        """Not offered: the kubelet never asks."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not offered in GetDevicePluginOptions")
        return api.PreferredAllocationResponse()

    async def PreStartContainer(
        self, request: api.PreStartContainerRequest, context: Any
    ) -> api.PreStartContainerResponse:
        """Not offered: the kubelet never asks."""
        await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not offered in GetDevicePluginOptions")
        return api.PreStartContainerResponse()

    async def Allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        """Env and fully qualified CDI names for each container.

        NOT_FOUND for an id that is none of ours, FAILED_PRECONDITION for a device that is not healthy.
        """
        resource = self.table.resource.name
        try:
            answers = [allocate(self.table, list(asked.devices_ids)) for asked in request.container_requests]
        except NotAllocatable as error:
            log.error("%s: refused to allocate: %s", resource, error)
            code = (
                grpc.StatusCode.NOT_FOUND if isinstance(error, UnknownDevice) else grpc.StatusCode.FAILED_PRECONDITION
            )
            await context.abort(code, str(error))
        for asked, answer in zip(request.container_requests, answers):
            log.info(
                "%s: allocated %s as %s",
                resource,
                " ".join(sorted(asked.devices_ids)),
                " ".join([d.name for d in answer.cdi_devices] + sorted(answer.envs)) or "nothing to add",
            )
        return api.AllocateResponse(container_responses=answers)


async def _first(awaited: asyncio.Future[Any], end: asyncio.Future[None]) -> bool:
    """Whether ``awaited`` is done before the stream is to end."""
    try:
        await asyncio.wait([awaited, end], return_when=asyncio.FIRST_COMPLETED)
    finally:
        awaited.cancel()
    return not end.done()
