"""The kubelet connection of one resource: serve, register, notice that the stream is lost, begin again.

What the kubelet asks for (k8s.io/kubernetes, pkg/kubelet/cm/devicemanager):
- it calls back inside Register, so serving comes first;
- it never opens a lost ListAndWatch stream again, so a lost stream means to register anew;
- when an old stream ends it drops whoever is registered under that name, so a new registration is made only while no
  stream is open;
- two servers on one socket path steal it from each other, so each server has a path of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import secrets
import time
from typing import AsyncIterator

from .channels import grpc
from .kubelet_socket import Identity, KubeletSocket
from .observability import metrics
from .service import DevicePlugin
from .sockets import SOCKET_FOLDER
from .wire import device_plugin_v1beta1_pb2 as api
from .wire import device_plugin_v1beta1_pb2_grpc as api_grpc

log = logging.getLogger(__name__)

API_VERSION = "v1beta1"

#: Seconds. The kubelet dials back for up to 10 s inside Register.
_REGISTER_DEADLINE = 15.0
#: Seconds from a registration that went well to its stream; it takes milliseconds.
_STREAM_DEADLINE = 5.0
_FIRST_RETRY, _LAST_RETRY = 0.1, 2.0
#: Seconds after which a stream counts as one that went well.
_STEADY = 5.0
#: Longest path that a unix socket can have, in bytes.
_LONGEST_SOCKET_PATH = 107
_STOP_GRACE = 0.5


class Registration:
    """Keeps one resource registered with the kubelet of a device plugin directory.

    kubelet: its socket, which the resources of a directory share.
    """

    def __init__(self, service: DevicePlugin, kubelet: KubeletSocket) -> None:
        self.service = service
        self.resource = service.table.resource.name
        self._directory = kubelet.directory
        self._kubelet = kubelet
        self._serving = asyncio.Event()

    async def serving(self) -> None:
        """Return once the socket is there."""
        await self._serving.wait()

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet has its stream open."""
        return self.service.stream.is_open

    async def run(self) -> None:
        """Serve and stay registered until cancelled."""
        while True:
            try:
                async with self._server() as socket:
                    self._serving.set()
                    await self._stay_registered(socket)
            except OSError as error:
                log.error("%s: cannot serve in %s: %s", self.resource, self._directory, error.strerror or error)
                if error.errno == errno.EROFS:
                    # Our folder is gone (`kubeadm reset`), and the unit's sandbox lets us make no other: systemd makes
                    # both anew when it starts us again.
                    raise
                await asyncio.sleep(_LAST_RETRY)

    @contextlib.asynccontextmanager
    async def _server(self) -> AsyncIterator[str]:
        path = socket_path(self._directory, self.resource)
        os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
        server = grpc.aio.server()
        api_grpc.add_DevicePluginServicer_to_server(self.service, server)
        try:
            server.add_insecure_port("unix:" + path)
        except RuntimeError as error:
            raise OSError(0, "the socket %s cannot be bound" % path) from error
        try:
            await server.start()
            yield path
        finally:
            self.service.stream.end()
            await server.stop(_STOP_GRACE)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)

    async def _stay_registered(self, socket: str) -> None:
        """Return where the socket has vanished, so that it has to be made anew."""
        retry = _FIRST_RETRY
        while True:
            kubelet = await self._kubelet_there()
            if not os.path.exists(socket):
                log.warning("%s: somebody removed %s; serving anew", self.resource, socket)
                return
            if await self._register(socket, kubelet):
                log.info("%s: registered with the kubelet", self.resource)
                registered = time.monotonic()
                await self.service.stream.wait_until(False)
                log.warning("%s: the kubelet's stream has ended; registering again", self.resource)
                # A kubelet that ends each stream at once is asked ever more rarely; a new one is asked at once.
                if time.monotonic() - registered > _STEADY:
                    retry = _FIRST_RETRY
                    continue
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._kubelet.other_than(kubelet), retry)
            retry = min(2 * retry, _LAST_RETRY)

    async def _register(self, socket: str, kubelet: Identity) -> bool:
        request = api.RegisterRequest(
            version=API_VERSION,
            endpoint=os.path.relpath(socket, self._directory),
            resource_name=self.resource,
            options=await self.service.GetDevicePluginOptions(api.Empty(), None),
        )
        try:
            await self._kubelet.register(request, _REGISTER_DEADLINE)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                metrics.REGISTRATIONS.increment(self.resource, "no_kubelet")
                log.info("%s: no kubelet answers on %s", self.resource, self._kubelet.path)
            else:
                metrics.REGISTRATIONS.increment(self.resource, "refused")
                log.warning("%s: the kubelet refused: %s: %s", self.resource, error.code().name, error.details())
            return False
        if not await self._stream_opened(kubelet):
            metrics.REGISTRATIONS.increment(self.resource, "no_stream")
            log.warning("%s: registered, but the kubelet opened no stream", self.resource)
            return False
        metrics.REGISTRATIONS.increment(self.resource, "registered")
        return True

    async def _stream_opened(self, kubelet: Identity) -> bool:
        """Whether the kubelet opens the stream; it does not if it goes first, or takes too long."""
        opened = asyncio.ensure_future(self.service.stream.wait_until(True))
        replaced = asyncio.ensure_future(self._kubelet.other_than(kubelet))
        try:
            await asyncio.wait([opened, replaced], timeout=_STREAM_DEADLINE, return_when=asyncio.FIRST_COMPLETED)
            return opened.done()
        finally:
            opened.cancel()
            replaced.cancel()

    async def _kubelet_there(self) -> Identity:
        if self._kubelet.identity() is None:
            log.info("%s: waiting for the kubelet's socket %s", self.resource, self._kubelet.path)
        return await self._kubelet.other_than(None)


def socket_path(directory: str, resource: str) -> str:
    """A new path for a server of ``resource``. OSError where it would be too long for a socket."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", resource.partition("/")[2])[:12]
    path = os.path.join(directory, SOCKET_FOLDER, "%s-%s.sock" % (name, secrets.token_hex(3)))
    if len(os.fsencode(path)) > _LONGEST_SOCKET_PATH:
        raise OSError(0, "the path %s is longer than the %d bytes of a socket" % (path, _LONGEST_SOCKET_PATH))
    return path


def remove_stale_sockets(directory: str) -> None:
    """Take away what a killed instance left in our folder. Only one instance runs on a node."""
    folder = os.path.join(directory, SOCKET_FOLDER)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(folder):
            if entry.name.endswith(".sock"):
                os.unlink(entry.path)
