"""Base of both registrations: serves one resource on a socket and replaces the socket if needed."""

from __future__ import annotations

import abc
import asyncio
import logging
import os
from typing import Any

from ...support.channels import grpc, unix_server
from ...support.sockets import directory_is_lost
from ...telemetry import metrics
from ...telemetry.logs import Log, Tries
from ...wire import device_plugin_v1beta1_pb2_grpc as api_grpc
from .server import DevicePluginServer

log = Log(__name__)

API_VERSION = "v1beta1"

#: First and longest pause, in seconds, before another attempt to serve.
_FIRST_RETRY, _LAST_RETRY = 2.0, 15.0


class KubeletConnection(abc.ABC):
    """Keeps one resource registered with the kubelet."""

    def __init__(self, service: DevicePluginServer) -> None:
        self.service = service
        self.resource = service.resource.name
        #: Set once the socket exists.
        self.serving = asyncio.Event()
        self._tries = Tries(log)
        #: Why the socket cannot be served; None while it is served.
        self.problem: str | None = None

    async def run(self) -> None:
        """Serve and stay registered until cancelled."""
        retry = _FIRST_RETRY
        while True:
            path = self._socket_path()
            try:
                async with unix_server(path, self._add_services):
                    self.problem, retry = None, _FIRST_RETRY
                    self.serving.set()
                    try:
                        await self._stay_registered(path)
                    finally:
                        # End the stream first, because a stopping server waits for its streams.
                        self.service.stream.end()
            except OSError as error:
                directory, why = os.path.dirname(path), error.strerror or str(error)
                self.problem = f"cannot serve in {directory}: {why}"
                self._tries.failed(
                    logging.ERROR, "cannot serve", resource=self.resource, directory=directory, error=why
                )
                if directory_is_lost(error):
                    raise
                await asyncio.sleep(retry)
                retry = min(2 * retry, _LAST_RETRY)

    def _add_services(self, server: grpc.aio.Server) -> None:
        """Add the services that the socket offers."""
        api_grpc.add_DevicePluginServicer_to_server(self.service, server)

    def _socket_has_gone(self, path: str) -> bool:
        if os.path.exists(path):
            return False
        log.warning("the socket was removed; serving again", resource=self.resource, socket=path)
        return True

    def _failed(self, outcome: str, level: int, message: str, **values: Any) -> None:
        """Count and log a failed registration. outcome: the metric's label."""
        metrics.REGISTRATIONS.increment(self.resource, outcome)
        self._tries.failed(level, message, resource=self.resource, **values)

    def _registered(self) -> None:
        """Count and log a successful registration."""
        metrics.REGISTRATIONS.increment(self.resource, "registered")
        self._tries.went_well()
        log.info("registered with the kubelet", resource=self.resource)

    @abc.abstractmethod
    def _socket_path(self) -> str:
        """The socket path of the next server."""

    @abc.abstractmethod
    async def _stay_registered(self, path: str) -> None:
        """Stay registered; return when the resource needs a new socket instead of ``path``."""
