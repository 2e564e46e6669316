"""The other way to the kubelet: a socket in ``plugins_registry``, which the kubelet finds by itself and calls.

What the kubelet does (k8s.io/kubernetes, pkg/kubelet/pluginmanager): it watches the folder, asks a new socket for its
GetInfo, opens the ListAndWatch stream to the endpoint named there, and tells the outcome. A socket that stays is found
again by a kubelet that restarts. A stream that it lost it never opens again, unless the socket goes and comes anew.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import re
from typing import Any, AsyncIterator

from .channels import grpc
from .observability import metrics
from .registration import API_VERSION
from .service import DevicePlugin
from .wire import device_plugin_v1beta1_pb2_grpc as api_grpc
from .wire import plugin_registration_v1_pb2 as registry
from .wire import plugin_registration_v1_pb2_grpc as registry_grpc

log = logging.getLogger(__name__)

#: The folder below the kubelet's root directory.
FOLDER = "plugins_registry"
_TYPE = "DevicePlugin"
_PREFIX = "node-device-plugin-"
#: Seconds between two looks at our socket while the kubelet has no stream open.
_LOOK = 1.0
#: Seconds from a registration that went well to its stream; it takes milliseconds.
_STREAM_DEADLINE = 5.0
_RETRY = 2.0
_STOP_GRACE = 0.5


class RegistryRegistration(registry_grpc.RegistrationServicer):
    """Keeps one resource where the kubelet finds it. root: the kubelet's root directory (its --root-dir)."""

    def __init__(self, service: DevicePlugin, root: str) -> None:
        self.service = service
        self.resource = service.table.resource.name
        self.socket = socket_path(root, self.resource)
        self._serving = asyncio.Event()
        self._told = asyncio.Event()

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
                async with self._server():
                    self._serving.set()
                    await self._stay_registered()
            except OSError as error:
                log.error("%s: cannot serve on %s: %s", self.resource, self.socket, error.strerror or error)
                await asyncio.sleep(_RETRY)

    async def GetInfo(self, request: registry.InfoRequest, context: Any) -> registry.PluginInfo:
        """Both services are on the one socket."""
        return registry.PluginInfo(
            type=_TYPE, name=self.resource, endpoint=self.socket, supported_versions=[API_VERSION]
        )

    async def NotifyRegistrationStatus(
        self, request: registry.RegistrationStatus, context: Any
    ) -> registry.RegistrationStatusResponse:
        """The kubelet tells how it went. After a failure it tries again by itself, later and later."""
        if request.plugin_registered:
            self._told.set()
        else:
            metrics.REGISTRATIONS.increment(self.resource, "refused")
            log.warning("%s: the kubelet refused: %s", self.resource, request.error)
        return registry.RegistrationStatusResponse()

    @contextlib.asynccontextmanager
    async def _server(self) -> AsyncIterator[None]:
        self._told.clear()
        os.makedirs(os.path.dirname(self.socket), mode=0o750, exist_ok=True)
        server = grpc.aio.server()
        api_grpc.add_DevicePluginServicer_to_server(self.service, server)
        registry_grpc.add_RegistrationServicer_to_server(self, server)
        try:
            server.add_insecure_port("unix:" + self.socket)
        except RuntimeError as error:
            raise OSError(0, "the socket cannot be bound") from error
        try:
            await server.start()
            yield
        finally:
            self.service.stream.end()
            await server.stop(_STOP_GRACE)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.socket)

    async def _stay_registered(self) -> None:
        """Return where the socket has to be made anew."""
        log.info("%s: waiting for the kubelet to find %s", self.resource, self.socket)
        without_stream = 0.0
        while not self.is_registered:
            await self.service.stream.wait_until(True, timeout=_LOOK)
            if not os.path.exists(self.socket):
                log.warning("%s: somebody removed %s; serving anew", self.resource, self.socket)
                return
            without_stream += _LOOK if self._told.is_set() else 0
            if without_stream > _STREAM_DEADLINE and not self.is_registered:
                metrics.REGISTRATIONS.increment(self.resource, "no_stream")
                log.warning("%s: registered, but the kubelet opened no stream; serving anew", self.resource)
                return
        metrics.REGISTRATIONS.increment(self.resource, "registered")
        log.info("%s: registered with the kubelet", self.resource)
        await self.service.stream.wait_until(False)
        log.warning("%s: the kubelet's stream has ended; serving anew", self.resource)


def socket_path(root: str, resource: str) -> str:
    """The path of a resource's socket: always the same, so that the kubelet sees the old one go before the new one."""
    name = re.sub(r"[^A-Za-z0-9-]", "-", resource.partition("/")[2])[:12]
    digest = hashlib.sha256(resource.encode()).hexdigest()[:6]
    return os.path.join(root, FOLDER, "%s%s-%s.sock" % (_PREFIX, name, digest))


def remove_stale_sockets(root: str) -> None:
    """Take away what a killed instance left. Only one instance runs on a node."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for entry in os.scandir(os.path.join(root, FOLDER)):
            if entry.name.startswith(_PREFIX) and entry.name.endswith(".sock"):
                os.unlink(entry.path)
