"""The other way to the kubelet: a socket in ``plugins_registry``, which the kubelet finds by itself and calls.

What the kubelet does (k8s.io/kubernetes, pkg/kubelet/pluginmanager): it watches the folder, asks a new socket for its
GetInfo, opens the ListAndWatch stream to the endpoint named there, and tells the outcome. A socket that stays is found
again by a kubelet that restarts. A stream that it lost it never opens again, unless the socket goes and comes anew.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import secrets
from typing import Any

from ..support.cancel_safe import done_within
from ..support.channels import grpc
from ..telemetry.logs import Log
from ..wire import plugin_registration_v1_pb2 as registry
from ..wire import plugin_registration_v1_pb2_grpc as registry_grpc
from .device_plugin.connection import API_VERSION, KubeletConnection, remove_sockets, socket_name
from .device_plugin.server import DevicePluginServer

log = Log(__name__)

#: The folder below the kubelet's root directory.
DIRECTORY = "plugins_registry"
_PREFIX = "node-device-plugin-"
#: Seconds between two looks at our socket while the kubelet has no stream open.
_LOOK = 1.0
#: Seconds from a registration that went well to its stream; it takes milliseconds.
_STREAM_DEADLINE = 5.0
#: Seconds that a kubelet has to open a stream again by itself. It lets go of a socket that came anew and takes it in
#: again in two looks, which are a second apart.
_BACK = 2.5


class PluginWatcherRegistration(KubeletConnection, registry_grpc.RegistrationServicer):
    """Keeps one resource where the kubelet finds it.

    root: the kubelet's root directory (its --root-dir). overlaps: whether another instance may serve the resource
    at the same time.
    """

    def __init__(self, service: DevicePluginServer, root: str, overlaps: bool = False) -> None:
        super().__init__(service)
        self.socket = socket_path(root, self.resource, secrets.token_hex(3) if overlaps else "")
        self._told = asyncio.Event()

    async def GetInfo(self, request: registry.InfoRequest, context: Any) -> registry.PluginInfo:
        """Both services are on the one socket (k8s.io/kubelet, pkg/apis/pluginregistration/v1: PluginInfo)."""
        return registry.PluginInfo(
            type="DevicePlugin", name=self.resource, endpoint=self.socket, supported_versions=[API_VERSION]
        )

    async def NotifyRegistrationStatus(
        self, request: registry.RegistrationStatus, context: Any
    ) -> registry.RegistrationStatusResponse:
        """The kubelet tells how it went. After a failure it tries again by itself, later and later."""
        if request.plugin_registered:
            self._told.set()
        else:
            self._failed("refused", logging.WARNING, "the kubelet refused", error=request.error)
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
            # A kubelet that has restarted finds the socket as it is; made anew at once, the socket would take the new
            # kubelet's connection away, which would end its stream, and so on (seen: 20 times and more).
            if not await done_within(self.service.stream.wait_until(True), _BACK):
                log.warning("the kubelet does not open the stream again; making a new socket", resource=self.resource)
                return

    async def _stream_opened(self, path: str) -> bool:
        """Wait for the stream. False where that is of no use any more."""
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
                    "registered, but the kubelet opened no stream; making a new socket",
                )
                return False
        return True


def socket_path(root: str, resource: str, instance: str = "") -> str:
    """The path of a resource's socket: always the same, so that the kubelet sees the old one go before the new one.

    instance: six characters, where it is the same for one instance only. From 1.37 a kubelet tells sockets apart.
    """
    tail = instance or hashlib.sha256(resource.encode()).hexdigest()[:6]
    return os.path.join(root, DIRECTORY, _PREFIX + socket_name(resource, tail))


def remove_stale_sockets(root: str) -> None:
    """Take away what a killed instance left."""
    remove_sockets(os.path.join(root, DIRECTORY), _PREFIX)
