"""A scripted device plugin that records each call of the kubelet."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Callable

from node_device_plugin.support.channels import grpc, unix_channel
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api
from node_device_plugin.wire import device_plugin_v1beta1_pb2_grpc as api_grpc

#: Timeout in seconds of Register. During this call, the kubelet dials the plugin for up to 10 s.
REGISTER_TIMEOUT = 15.0

#: One call of the kubelet, as plain data, e.g. ``{"call": "Allocate", "devices": ["a0"]}``.
Call = dict[str, Any]


async def register(
    directory: str, resource: str, endpoint: str, version: str = "v1beta1", timeout: float = REGISTER_TIMEOUT
) -> str:
    """Register with the kubelet that listens in ``directory``; returns ``ok``, or gRPC's code and message.

    timeout: seconds.
    """
    request = api.RegisterRequest(version=version, endpoint=endpoint, resource_name=resource)
    async with unix_channel(os.path.join(directory, "kubelet.sock")) as channel:
        try:
            await api_grpc.RegistrationStub(channel).Register(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            return "%s: %s" % (error.code().name, error.details())
    return "ok"


class RecordingPlugin(api_grpc.DevicePluginServicer):
    """One server of one resource, with the calls that it received.

    endpoint: the socket, relative to the kubelet's device plugin directory. Every instance needs its own endpoint.
    devices: maps each id to its health (``Healthy`` or ``Unhealthy``).
    answer: returns Allocate's answer for one container's sorted ids. If it raises RuntimeError, the call fails.
    prefer: returns GetPreferredAllocation's answer for the sorted available ids and the requested number; None if the
    plugin does not offer this call.
    """

    def __init__(
        self,
        directory: str,
        resource: str,
        endpoint: str,
        devices: Mapping[str, str],
        answer: Callable[[list[str]], api.ContainerAllocateResponse] | None = None,
        prefer: Callable[[list[str], int], list[str]] | None = None,
        pre_start: bool = False,
    ) -> None:
        self.directory = directory
        self.resource = resource
        self.endpoint = endpoint
        self.devices = dict(devices)
        self.calls: list[Call] = []
        self._answer = answer or (lambda ids: api.ContainerAllocateResponse())
        self._prefer = prefer
        self._pre_start = pre_start
        self._server: grpc.aio.Server | None = None
        self._changed: asyncio.Condition = asyncio.Condition()
        self._ended = 0
        self._stopping = False

    async def start(self) -> None:
        """Serve."""
        path = os.path.join(self.directory, self.endpoint)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._stopping = False
        self._server = grpc.aio.server()
        self._add_services(self._server)
        self._server.add_insecure_port("unix:" + path)
        await self._server.start()

    async def stop(self) -> None:
        """Stop serving. Every stream ends, and the socket is removed."""
        self._stopping = True
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    def _add_services(self, server: grpc.aio.Server) -> None:
        api_grpc.add_DevicePluginServicer_to_server(self, server)

    async def register(self) -> str:
        """Register with the kubelet; returns ``ok``, or gRPC's code and message."""
        return await register(self.directory, self.resource, self.endpoint)

    async def set_devices(self, devices: Mapping[str, str]) -> None:
        """Send a new device list."""
        async with self._changed:
            self.devices = dict(devices)
            self._changed.notify_all()

    async def end_streams(self) -> None:
        """End every open ListAndWatch stream, and keep serving."""
        async with self._changed:
            self._ended += 1
            self._changed.notify_all()

    async def GetDevicePluginOptions(self, request: api.Empty, context: Any) -> api.DevicePluginOptions:
        self.calls.append({"call": "GetDevicePluginOptions"})
        return api.DevicePluginOptions(
            pre_start_required=self._pre_start, get_preferred_allocation_available=self._prefer is not None
        )

    async def ListAndWatch(self, request: api.Empty, context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        self.calls.append({"call": "ListAndWatch"})
        ended, sent = self._ended, None
        try:
            while self._ended == ended:
                if sent != self.devices:
                    sent = self.devices
                    yield api.ListAndWatchResponse(devices=[api.Device(ID=i, health=h) for i, h in sent.items()])
                    continue
                async with self._changed:
                    while self._ended == ended and self.devices == sent:
                        await self._changed.wait()
        except (asyncio.CancelledError, GeneratorExit):
            self.calls.append({"call": "ListAndWatch", "ended_by": "plugin" if self._stopping else "kubelet"})
            raise
        self.calls.append({"call": "ListAndWatch", "ended_by": "plugin"})

    async def GetPreferredAllocation(
        self, request: api.PreferredAllocationRequest, context: Any
    ) -> api.PreferredAllocationResponse:
        response = api.PreferredAllocationResponse()
        for wanted in request.container_requests:
            available = sorted(wanted.available_deviceIDs)
            self.calls.append(
                {
                    "call": "GetPreferredAllocation",
                    "available": available,
                    "must_include": sorted(wanted.must_include_deviceIDs),
                    "size": wanted.allocation_size,
                }
            )
            if self._prefer is None:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not offered")
            else:
                ids = await self._or_abort(context, self._prefer, available, wanted.allocation_size)
                response.container_responses.add(deviceIDs=ids)
        return response

    async def Allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        response = api.AllocateResponse()
        for container in request.container_requests:
            ids = sorted(container.devices_ids)
            self.calls.append({"call": "Allocate", "devices": ids})
            response.container_responses.append(await self._or_abort(context, self._answer, ids))
        return response

    async def PreStartContainer(
        self, request: api.PreStartContainerRequest, context: Any
    ) -> api.PreStartContainerResponse:
        self.calls.append({"call": "PreStartContainer", "devices": sorted(request.devices_ids)})
        return api.PreStartContainerResponse()

    @staticmethod
    async def _or_abort(context: Any, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except RuntimeError as error:
            await context.abort(grpc.StatusCode.INTERNAL, str(error))


def healthy(ids: Sequence[str]) -> dict[str, str]:
    """A device list in which all devices are healthy."""
    return dict.fromkeys(ids, "Healthy")
