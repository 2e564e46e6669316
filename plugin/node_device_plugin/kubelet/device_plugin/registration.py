"""Connects one resource to the kubelet: serves, registers, and registers again after a lost stream.

The kubelet's behaviour (k8s.io/kubernetes, pkg/kubelet/cm/devicemanager) and the consequences:
- The kubelet calls back inside Register, so the server must run first.
- The kubelet never reopens a lost ListAndWatch stream, so a lost stream needs a new registration.
- Up to 1.36, the end of an old stream drops the current registration of the same name
  (kubernetes#127803). The plugin therefore registers only while no stream is open.
- From 1.37, the kubelet refuses a known socket and then misses the end of its stream, so the node
  offers devices without a server. The plugin therefore gives a kubelet process each socket only
  once. A restarted kubelet gets the existing socket.
- If two servers use one socket path, the second server replaces the first. Each server therefore has its own path.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time

from ...support.cancel_safe import done_within
from ...support.channels import grpc
from ...support.file_identity import Identity
from ...support.sockets import SOCKET_DIRECTORY, remove_sockets, socket_name
from ...telemetry.logs import Log
from ...wire import device_plugin_v1beta1_pb2 as api
from .connection import API_VERSION, KubeletConnection
from .kubelet_socket import KubeletSocket
from .server import DevicePluginServer

log = Log(__name__)

#: Maximum seconds for Register, in which the kubelet dials back for up to 10 s.
_REGISTER_DEADLINE = 15.0
#: Maximum seconds until the kubelet opens the stream after a registration; usually milliseconds.
_STREAM_DEADLINE = 5.0
#: The same limit if the kubelet restarted during the call: either kubelet may have accepted it.
_STREAM_DEADLINE_IN_DOUBT = 0.5
_FIRST_RETRY, _LAST_RETRY = 0.1, 2.0
#: First pause, in seconds, before a retry on a socket without a listener. A starting kubelet binds
#: its socket before it listens.
_FIRST_LOOK = 0.01
#: A stream that stays open for more than this many seconds counts as stable.
_STEADY = 5.0


class Registration(KubeletConnection):
    """Keeps one resource registered with the kubelet of a device plugin directory.

    kubelet: the kubelet's socket, shared by all resources of the directory.
    """

    def __init__(self, service: DevicePluginServer, kubelet: KubeletSocket) -> None:
        super().__init__(service)
        self._directory = kubelet.directory
        self._kubelet = kubelet
        self._retry = _FIRST_RETRY

    def _socket_path(self) -> str:
        return socket_path(self._directory, self.resource)

    async def _stay_registered(self, path: str) -> None:
        asked: set[Identity] = set()
        look = _FIRST_LOOK
        while True:
            kubelet = await self._kubelet_there()
            if self._socket_has_gone(path):
                return
            if not self._kubelet.answers():
                self._failed("no_kubelet", logging.INFO, "no kubelet answers", socket=self._kubelet.path)
                is_other = await done_within(self._kubelet.other_than(kubelet), look)
                look = _FIRST_LOOK if is_other else min(2 * look, _LAST_RETRY)
                continue
            if kubelet in asked:
                log.debug("registering a new socket", resource=self.resource)
                return
            if await self._register(path, kubelet, asked):
                self._registered()
                registered = time.monotonic()
                await self.service.stream.wait_until(False)
                log.warning("the kubelet's stream ended; registering again", resource=self.resource)
                # If streams end soon, retries slow down. A new kubelet ends the pause.
                if time.monotonic() - registered > _STEADY:
                    self._retry = _FIRST_RETRY
                    continue
            await done_within(self._kubelet.other_than(kubelet), self._retry)
            self._retry = min(2 * self._retry, _LAST_RETRY)

    async def _register(self, socket: str, kubelet: Identity, asked: set[Identity]) -> bool:
        """Register. Returns whether the kubelet opened its stream.

        asked: kubelets that may know the socket; this method adds to the set.
        """
        request = api.RegisterRequest(
            version=API_VERSION,
            endpoint=os.path.relpath(socket, self._directory),
            resource_name=self.resource,
            options=await self.service.GetDevicePluginOptions(api.Empty(), None),
        )
        asked.add(kubelet)
        try:
            await self._kubelet.register(request, _REGISTER_DEADLINE)
        except grpc.aio.AioRpcError as error:
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                self._failed("no_kubelet", logging.INFO, "no kubelet answers", socket=self._kubelet.path)
            else:
                code, details = error.code().name, error.details()
                self._failed(
                    "refused", logging.WARNING, "the kubelet refused the registration", code=code, error=details
                )
            return False
        finally:
            now = self._kubelet.identity()
            if now is not None:
                asked.add(now)
        deadline = _STREAM_DEADLINE if now == kubelet else _STREAM_DEADLINE_IN_DOUBT
        is_open = await self._stream_opened(now, deadline)
        if not is_open:
            self._failed("no_stream", logging.WARNING, "registered, but the kubelet opened no stream")
        return is_open

    async def _stream_opened(self, kubelet: Identity | None, deadline: float) -> bool:
        """Whether the stream opens before ``deadline`` seconds pass or another kubelet starts."""
        opened = asyncio.ensure_future(self.service.stream.wait_until(True))
        replaced = asyncio.ensure_future(self._kubelet.other_than(kubelet))
        try:
            await asyncio.wait([opened, replaced], timeout=deadline, return_when=asyncio.FIRST_COMPLETED)
            return opened.done()
        finally:
            opened.cancel()
            replaced.cancel()

    async def _kubelet_there(self) -> Identity:
        if self._kubelet.identity() is None:
            log.info("waiting for the kubelet's socket", resource=self.resource, socket=self._kubelet.path)
        return await self._kubelet.other_than(None)


def socket_path(directory: str, resource: str) -> str:
    """A new path for a server of ``resource``."""
    return os.path.join(directory, SOCKET_DIRECTORY, socket_name(resource, os.urandom(3).hex()))


def remove_stale_sockets(directory: str) -> None:
    """Remove the sockets of a killed instance from our directory."""
    remove_sockets(os.path.join(directory, SOCKET_DIRECTORY))
