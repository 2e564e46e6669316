"""The DRAResourceHealth services, in which the kubelet learns the health of the devices that pods have."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, Callable, NamedTuple

from ...devices.reason import told
from ...support.channels import grpc
from ...wire import dra_health_v1_pb2 as api
from ...wire import dra_health_v1_pb2_grpc as v1_grpc
from ...wire import dra_health_v1alpha1_pb2_grpc as v1alpha1_grpc

#: Seconds after which a list is sent again. What is not repeated within 30 s is unknown to the kubelet.
_REPEAT = 10.0
#: Maximum characters of a message (k8s.io/kubelet, pkg/apis/dra-health/v1). The kubelet would cut longer ones.
_LONGEST = 1024
#: Devices in a message. The kubelet takes 4 MiB, gRPC's default, and a device has at most 5 kB. What a message does not
#: list stays as it was for 30 s (updateHealthInfo in pkg/kubelet/cm/dra of Kubernetes).
_MOST = 500


class DeviceHealth(NamedTuple):
    """The health of a device. pool, name: in the ResourceSlices. reason: why it is unhealthy; None if it is healthy."""

    pool: str
    name: str
    reason: str | None


class HealthServer(v1_grpc.DRAResourceHealthServicer):
    """Streams the health of all devices. devices: their health now.

    v1 and v1alpha1 have the same messages, and only kubelets up to 1.36 know just v1alpha1.
    """

    def __init__(self, devices: Callable[[], list[DeviceHealth]]) -> None:
        self._devices = devices
        self._change = asyncio.Event()
        self._ends: set[asyncio.Future[Any]] = set()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve both versions."""
        v1_grpc.add_DRAResourceHealthServicer_to_server(self, server)
        v1alpha1_grpc.add_DRAResourceHealthServicer_to_server(self, server)  # type: ignore[arg-type]

    def changed(self) -> None:
        """Send the list again."""
        self._change.set()
        self._change = asyncio.Event()

    def end(self) -> None:
        """End every stream, so that a server can stop. The kubelet opens another stream after 5 s."""
        for end in self._ends:
            if not end.done():
                end.set_result(None)

    async def NodeWatchResources(
        self, request: api.NodeWatchResourcesRequest, context: Any
    ) -> AsyncIterator[api.NodeWatchResourcesResponse]:
        """Send the complete list now, after each change, and before the kubelet forgets it."""
        with self._opened() as end:
            while not end.done():
                change: asyncio.Future[Any] = asyncio.ensure_future(self._change.wait())
                devices = self._devices()
                for begin in range(0, max(len(devices), 1), _MOST):
                    yield _list(devices[begin : begin + _MOST])
                try:
                    await asyncio.wait([change, end], timeout=_REPEAT, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    change.cancel()

    @contextlib.contextmanager
    def _opened(self) -> Iterator[asyncio.Future[Any]]:
        end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._ends.add(end)
        try:
            yield end
        finally:
            self._ends.discard(end)


def _list(devices: list[DeviceHealth]) -> api.NodeWatchResourcesResponse:
    now = int(time.time())
    return api.NodeWatchResourcesResponse(
        devices=[
            api.DeviceHealth(
                device=api.DeviceIdentifier(pool_name=each.pool, device_name=each.name),
                health=api.HEALTHY if each.reason is None else api.UNHEALTHY,
                last_updated_time=now,
                message=told(each.reason or "")[:_LONGEST],
            )
            for each in devices
        ]
    )
