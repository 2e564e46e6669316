"""Registration through a socket in ``plugins_registry``, which the kubelet finds and calls by itself.

The kubelet (k8s.io/kubernetes, pkg/kubelet/pluginmanager) watches the directory and calls GetInfo
on a new socket. It opens the ListAndWatch stream to the endpoint in the answer, and reports the
outcome. A restarted kubelet finds an existing socket again. The kubelet reopens a lost stream only
if the socket disappears and a new socket appears.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from typing import Any

from ..support.cancel_safe import done_within
from ..support.channels import grpc
from ..telemetry.logs import Log
from ..wire import plugin_registration_v1_pb2 as registry
from ..wire import plugin_registration_v1_pb2_grpc as registry_grpc
from .device_plugin.connection import API_VERSION, KubeletConnection, remove_sockets, socket_name
from .device_plugin.server import DevicePluginServer

log = Log(__name__)

#: The directory below the kubelet's root directory.
DIRECTORY = "plugins_registry"
_PREFIX = "node-device-plugin-"
#: Seconds between two checks of our socket while the kubelet has no stream open.
_LOOK = 1.0
#: Maximum seconds until the kubelet opens the stream after a registration; usually milliseconds.
_STREAM_DEADLINE = 5.0
#: Maximum seconds until a kubelet reopens a stream by itself. The kubelet checks once a second: one
#: check drops a recreated socket, and the next check adds the socket.
_BACK = 2.5


class PluginWatcherRegistration(KubeletConnection, registry_grpc.RegistrationServicer):
    """Keeps one resource registered through a socket that the kubelet finds.

    root: the kubelet's root directory (its --root-dir). overlaps: whether another instance may serve the resource
    at the same time.
    """

    def __init__(self, service: DevicePluginServer, root: str, overlaps: bool = False) -> None:
        super().__init__(service)
        self.socket = socket_path(root, self.resource, os.urandom(3).hex() if overlaps else "")
        self._told = asyncio.Event()

    async def GetInfo(self, request: registry.InfoRequest, context: Any) -> registry.PluginInfo:
        """Name this socket, which serves both APIs, as the endpoint.

        Source: k8s.io/kubelet, pkg/apis/pluginregistration/v1, PluginInfo.
        """
        return registry.PluginInfo(
            type="DevicePlugin", name=self.resource, endpoint=self.socket, supported_versions=[API_VERSION]
        )

    async def NotifyRegistrationStatus(
        self, request: registry.RegistrationStatus, context: Any
    ) -> registry.RegistrationStatusResponse:
        """Handle the outcome. After a failure, the kubelet retries with growing pauses."""
        if request.plugin_registered:
            self._told.set()
        else:
            self._failed("refused", logging.WARNING, "the kubelet refused the registration", error=request.error)
        return registry.RegistrationStatusResponse()

    def _add_services(self, server: grpc.aio.Server) -> None:
        super()._add_services(server)
        registry_grpc.add_RegistrationServicer_to_server(self, server)

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
        self._told.clear()
        without_stream = 0.0
        while not await done_within(self.service.stream.wait_until(True), _LOOK):
            if self._socket_has_gone(path):
                return False
            without_stream += _LOOK if self._told.is_set() else 0
            if without_stream > _STREAM_DEADLINE:
                self._failed(
                    "no_stream",
                    logging.WARNING,
                    "registered, but the kubelet opened no stream; creating a new socket",
                )
                return False
        return True


def socket_path(root: str, resource: str, instance: str = "") -> str:
    """The socket path of a resource.

    The path is fixed, so that the kubelet sees the old socket disappear before the new one appears.
    instance: six characters for a path that only one instance has. From 1.37 on, the kubelet
    distinguishes sockets.
    """
    tail = instance or hashlib.sha256(resource.encode()).hexdigest()[:6]
    return os.path.join(root, DIRECTORY, _PREFIX + socket_name(resource, tail))


def remove_stale_sockets(root: str) -> None:
    """Remove the sockets of a killed instance."""
    remove_sockets(os.path.join(root, DIRECTORY), _PREFIX)
