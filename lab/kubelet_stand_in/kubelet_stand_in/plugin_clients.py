"""The kubelet's connections to plugins: Register, the dial back, and one ListAndWatch stream for each plugin.

Follows server, handler and client in pkg/kubelet/cm/devicemanager/plugin/v1beta1 of Kubernetes 1.36 and 1.37, including
their bugs. Up to 1.36, a lookup finds a resource's only client by the resource's name (kubernetes#127803). From 1.37
on, a resource may have several clients, and a lookup finds a client by its socket.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable
from typing import Callable, NoReturn, TypeVar

from node_device_plugin.support.cancel_safe import done_within
from node_device_plugin.support.channels import grpc, unix_channel
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api
from node_device_plugin.wire import device_plugin_v1beta1_pb2_grpc as api_grpc

from . import klog
from .names import is_extended_resource

#: Timeout in seconds of the kubelet's dial to the plugin, during the plugin's Register call.
DIAL_TIMEOUT = 10.0
#: Maximum bytes of a device list: gRPC's default, which the kubelet does not change.
RECEIVE_LIMIT = 4 << 20
_VERSION = "v1beta1"


#: The first minor version in which a resource may have several sockets.
SEVERAL_SOCKETS = (1, 37)

_CLOSING = "rpc error: code = Canceled desc = grpc: the client connection is closing"

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class CallError(Exception):
    """A call to a plugin failed; the text is the kubelet's log message."""


class Client:
    """The connection to one plugin."""

    def __init__(self, resource: str, socket: str) -> None:
        self.resource = resource
        self.socket = socket
        self._channel = unix_channel(socket, receive_limit=RECEIVE_LIMIT)
        self.stub: api_grpc.DevicePluginAsyncStub = api_grpc.DevicePluginStub(self._channel)
        self._stream: grpc.aio.UnaryStreamCall[api.Empty, api.ListAndWatchResponse] | None = None
        self._is_closed = False

    async def connect(self, timeout: float) -> api.DevicePluginOptions:
        """Dial for up to ``timeout`` seconds, and request the options. Raises CallError."""
        if not await done_within(self._channel.channel_ready(), timeout):
            raise CallError("failed to dial device plugin: context deadline exceeded")
        try:
            return await self.call(self.stub.GetDevicePluginOptions, api.Empty())
        except CallError as error:
            raise CallError("failed to get device plugin options: %s" % error) from error

    async def call(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        timeout: float | None = None,
    ) -> _Response:
        """Call one of ``stub``'s methods, for up to ``timeout`` seconds. Raises CallError."""
        if self._is_closed:
            raise CallError(_CLOSING)
        try:
            return await method(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise CallError(_in_go(error)) from error
        except asyncio.CancelledError:
            # Either ``close`` cancelled the call, or another task cancelled the caller.
            if not self._is_closed:
                raise
            raise CallError(_CLOSING) from None

    async def watch(self, on_devices: Callable[[str, api.ListAndWatchResponse], None]) -> str:
        """Pass each device list to ``on_devices`` until the stream ends. Returns the kubelet's text for the reason."""
        self._stream = self.stub.ListAndWatch(api.Empty())
        try:
            async for response in self._stream:
                klog.info(
                    2, "State pushed for device plugin", resource=self.resource, resourceCapacity=len(response.devices)
                )
                on_devices(self.resource, response)
        except grpc.aio.AioRpcError as error:
            return _in_go(error)
        except asyncio.CancelledError:
            if not self._is_closed:
                raise
            return _CLOSING
        return "EOF"

    async def close(self) -> None:
        """Close the connection, and end all its calls."""
        self._is_closed = True
        # Closing a grpc.aio channel does not end a stream that is being read.
        if self._stream is not None:
            self._stream.cancel()
        await self._channel.close(None)


class PluginClients(api_grpc.RegistrationServicer):
    """The registration service, and the map of connected plugins.

    on_connected: gets the client and its options, and may raise CallError. on_devices: gets the resource and its device
    list. on_disconnected: gets the resource and the socket. minor: the version of Kubernetes.
    """

    def __init__(
        self,
        directory: str,
        on_connected: Callable[[Client, api.DevicePluginOptions], None],
        on_devices: Callable[[str, api.ListAndWatchResponse], None],
        on_disconnected: Callable[[str, str], None],
        dial_timeout: float = DIAL_TIMEOUT,
        minor: tuple[int, int] = (1, 36),
    ) -> None:
        #: Resource and socket of every registration that reached the dial.
        self.asked: list[tuple[str, str]] = []
        self._has_several = minor >= SEVERAL_SOCKETS
        self._dial_timeout = dial_timeout
        self._directory = directory
        self._on_connected = on_connected
        self._on_devices = on_devices
        self._on_disconnected = on_disconnected
        self._clients: dict[str, list[Client]] = {}
        #: Every open connection, including orphans.
        self._open: set[Client] = set()
        self._running: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """End every stream without a lookup and without a change of state, as a dying kubelet does."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for client in self._open:
            await client.close()
        self._open.clear()
        self._clients.clear()

    async def Register(self, request: api.RegisterRequest, context: grpc.aio.ServicerContext) -> api.Empty:  # type: ignore[type-arg]
        resource = request.resource_name
        klog.info(0, "Got registration request from device plugin with resource", resourceName=resource)
        if request.version != _VERSION:
            await _refuse(
                context,
                'requested API version "%s" is not supported by kubelet. Supported version is ["%s"]'
                % (request.version, _VERSION),
            )
        if not is_extended_resource(resource):
            await _refuse(context, 'the ResourceName "%s" is invalid' % resource)
        try:
            # Join the paths as text, so that even an absolute endpoint is below this directory.
            await self._connect(resource, os.path.normpath(self._directory + "/" + request.endpoint))
        except CallError as error:
            await _refuse(context, str(error))
        return api.Empty()

    async def connect(self, resource: str, socket: str, versions: list[str]) -> None:
        """Connect a plugin that was found in plugins_registry. Raises CallError."""
        klog.info(2, "Got Plugin at endpoint with versions", plugin=resource, endpoint=socket, versions=versions)
        if _VERSION not in versions:
            raise CallError(
                "plugin validation failed with err: manager version, %s, is not among plugin supported versions [%s]"
                % (_VERSION, " ".join(versions))
            )
        if not is_extended_resource(resource):
            raise CallError(
                "plugin validation failed with err: invalid name of device plugin socket: the ResourceName %s is "
                "invalid" % json.dumps(resource)
            )
        try:
            await self._connect(resource, socket)
        except CallError as error:
            raise CallError("plugin registration failed with err: %s" % error) from error

    async def deregister(self, resource: str, socket: str) -> None:
        """Close the client of a socket that is gone from plugins_registry."""
        client = self._find(resource, socket)
        if client is not None:
            await self._close(client)

    async def _connect(self, resource: str, socket: str) -> None:
        client = Client(resource, socket)
        self.asked.append((resource, socket))
        self._open.add(client)
        # The new client replaces the old client before the new client's dial, and nothing closes the old client.
        self._clients[resource] = [*(self._clients.get(resource, ()) if self._has_several else ()), client]
        try:
            self._on_connected(client, await client.connect(self._dial_timeout))
        except (CallError, asyncio.CancelledError) as error:
            self._forget(resource, socket)
            await self._close(client)
            if not isinstance(error, asyncio.CancelledError):
                klog.error("Error connecting to device plugin client", error)
            raise
        klog.info(2, "Device plugin connected", resourceName=resource)
        self._start(self._run(client))

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, client: Client) -> None:
        problem = await client.watch(self._on_devices)
        klog.error("ListAndWatch ended unexpectedly for device plugin", problem, resource=client.resource)
        # kubernetes#127803: up to 1.36, the lookup may find the client of the resource's next plugin, and this method
        # closes that client. From 1.37 on, the lookup finds no client if a second Register with this socket failed.
        named = self._find(client.resource, client.socket)
        if named is not None:
            self._forget(named.resource, named.socket)
            self._on_disconnected(named.resource, named.socket)
            await self._close(named)
            klog.info(2, "Device plugin disconnected", resource=named.resource)

    def _find(self, resource: str, socket: str) -> Client | None:
        """Find a client by the resource's name, and from 1.37 on also by the socket."""
        clients = self._clients.get(resource, [])
        return next((each for each in clients if not self._has_several or each.socket == socket), None)

    def _forget(self, resource: str, socket: str) -> None:
        """Forget every client that the lookup finds."""
        clients = self._clients.pop(resource, [])
        rest = [each for each in clients if self._has_several and each.socket != socket]
        if rest:
            self._clients[resource] = rest

    async def _close(self, client: Client) -> None:
        self._open.discard(client)
        await client.close()


def _in_go(error: grpc.aio.AioRpcError) -> str:
    """A gRPC error in the format of the kubelet's log."""
    name = error.code().name.title().replace("_", "")
    return "rpc error: code = %s desc = %s" % (name, error.details())


async def _refuse(context: grpc.aio.ServicerContext, message: str) -> NoReturn:  # type: ignore[type-arg]
    """Abort a call as a Go server does for an error without a gRPC status."""
    await context.abort(grpc.StatusCode.UNKNOWN, message)
    raise AssertionError("abort raises")
