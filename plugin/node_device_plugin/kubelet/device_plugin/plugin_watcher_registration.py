"""Connects one resource to the kubelet through the plugin watcher, which finds the resource's socket.

The kubelet opens the ListAndWatch stream to the socket that it found. It reopens a lost stream only if the socket
disappears and a new socket appears.
"""

from __future__ import annotations

import logging
import os

from ...support.cancel_safe import done_within
from ...support.channels import grpc
from ...telemetry.logs import Log
from ..plugin_watcher import PluginWatcher, socket_path
from .connection import API_VERSION, KubeletConnection
from .server import DevicePluginServer

log = Log(__name__)

#: Seconds between two checks of our socket while the kubelet has no stream open.
_LOOK = 1.0
#: Maximum seconds until the kubelet opens the stream after a registration; usually milliseconds.
_STREAM_DEADLINE = 5.0
#: Maximum seconds until a kubelet reopens a stream by itself. The kubelet checks once a second: one
#: check drops a recreated socket, and the next check adds the socket.
_BACK = 2.5


class PluginWatcherRegistration(KubeletConnection):
    """Keeps one resource registered through a socket that the kubelet finds.

    root: the kubelet's root directory (its --root-dir). overlaps: whether another instance may serve the resource
    at the same time.
    """

    def __init__(self, service: DevicePluginServer, root: str, overlaps: bool = False) -> None:
        super().__init__(service)
        self.socket = socket_path(root, self.resource, os.urandom(3).hex() if overlaps else "")
        self._watcher = PluginWatcher("DevicePlugin", self.resource, self.socket, [API_VERSION], self._refused)

    def _refused(self, error: str) -> None:
        self._failed("refused", logging.WARNING, "the kubelet refused the registration", error=error)

    def _add_services(self, server: grpc.aio.Server) -> None:
        super()._add_services(server)
        self._watcher.add_to(server)

    def _socket_path(self) -> str:
        return self.socket

    async def _stay_registered(self, path: str) -> None:
        log.info("waiting for the kubelet to find the socket", resource=self.resource, socket=path)
        while await self._stream_opened(path):
            self._registered()
            await self.service.stream.wait_until(False)
            log.warning("the kubelet's stream ended", resource=self.resource)
            if self._socket_has_gone(path):
                return
            # A restarted kubelet finds the existing socket. If the plugin created a new socket at
            # once, the kubelet's new stream would end, repeatedly (seen over 20 times in a row).
            if not await done_within(self.service.stream.wait_until(True), _BACK):
                log.warning("the kubelet does not open the stream again; creating a new socket", resource=self.resource)
                return

    async def _stream_opened(self, path: str) -> bool:
        """Wait for the stream. Returns False if a new socket is needed first."""
        self._watcher.registered.clear()
        without_stream = 0.0
        while not await done_within(self.service.stream.wait_until(True), _LOOK):
            if self._socket_has_gone(path):
                return False
            without_stream += _LOOK if self._watcher.registered.is_set() else 0
            if without_stream > _STREAM_DEADLINE:
                self._failed(
                    "no_stream",
                    logging.WARNING,
                    "registered, but the kubelet opened no stream; creating a new socket",
                )
                return False
        return True
