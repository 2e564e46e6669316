"""The driver's socket, which the kubelet finds through its plugin watcher.

The kubelet keeps one connection to a driver and reconnects by itself. A restarted kubelet finds the existing socket.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Callable

from ...support.cancel_safe import done_within
from ...support.channels import grpc, unix_server
from ...support.sockets import directory_is_lost
from ...telemetry import metrics
from ...telemetry.logs import Log, Tries
from ...wire import dra_v1_pb2_grpc as api_grpc
from ..plugin_watcher import PluginWatcher, socket_path
from .health import HealthServer
from .server import DraPluginServer

log = Log(__name__)

#: The services on the socket. Of one API, the kubelet uses the first version that it knows.
_VERSIONS = ("v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
#: Seconds between two checks of the socket.
_LOOK = 1.0
#: First and longest pause, in seconds, before another attempt to serve.
_FIRST_RETRY, _LAST_RETRY = 2.0, 15.0


class DriverConnection:
    """Keeps the driver registered with the kubelet.

    root: the kubelet's root directory (its --root-dir). instance: see plugin_watcher.socket_path. on_registered: called
    with whether the kubelet has the driver registered, at each registration and when it ends.
    """

    def __init__(
        self,
        driver: str,
        root: str,
        instance: str,
        server: DraPluginServer,
        health: HealthServer,
        on_registered: Callable[[bool], None],
    ) -> None:
        self.path = socket_path(root, driver, instance)
        #: Set once the socket exists.
        self.serving = asyncio.Event()
        #: Why the kubelet cannot use the driver, if known.
        self.problem: str | None = None
        self._driver, self._server, self._health, self._on_registered = driver, server, health, on_registered
        self._watcher = PluginWatcher("DRAPlugin", driver, self.path, _VERSIONS, self._refused)
        #: Since when the driver is registered (monotonic seconds); None if it is not.
        self._registered_at: float | None = None
        self._tries = Tries(log)

    @property
    def registered_seconds(self) -> float | None:
        """For how long the driver has been registered; None if it is not."""
        return None if self._registered_at is None else time.monotonic() - self._registered_at

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError if the directory of the socket is lost."""
        retry = _FIRST_RETRY
        while True:
            try:
                async with unix_server(self.path, self._add_services):
                    self.problem, retry = None, _FIRST_RETRY
                    self._tries.went_well()
                    self.serving.set()
                    log.info("waiting for the kubelet to find the socket", driver=self._driver, socket=self.path)
                    try:
                        await self._until_gone()
                    finally:
                        self._set_registered(False)
                        # End the streams first, because a stopping server waits for them.
                        self._health.end()
            except OSError as error:
                directory, why = os.path.dirname(self.path), error.strerror or str(error)
                self.problem = f"cannot serve in {directory}: {why}"
                self._tries.failed(logging.ERROR, "cannot serve", driver=self._driver, directory=directory, error=why)
                if directory_is_lost(error):
                    raise
                await asyncio.sleep(retry)
                retry = min(2 * retry, _LAST_RETRY)

    def _add_services(self, server: grpc.aio.Server) -> None:
        self._watcher.add_to(server)
        api_grpc.add_DRAPluginServicer_to_server(self._server, server)
        self._health.add_to(server)

    async def _until_gone(self) -> None:
        self._watcher.registered.clear()
        while os.path.exists(self.path):
            if await done_within(self._watcher.registered.wait(), _LOOK):
                # A kubelet that starts again registers the driver again.
                self._watcher.registered.clear()
                self._set_registered(True)
        log.warning("the socket was removed; serving again", driver=self._driver, socket=self.path)

    def _refused(self, error: str) -> None:
        self._watcher.registered.clear()
        self._set_registered(False)
        self.problem = f"the kubelet refused the registration: {error}"
        metrics.REGISTRATIONS.increment(self._driver, "refused")
        self._tries.failed(logging.WARNING, "the kubelet refused the registration", driver=self._driver, error=error)

    def _set_registered(self, is_registered: bool) -> None:
        if not is_registered and self._registered_at is None:
            return
        self._registered_at = time.monotonic() if is_registered else None
        if is_registered:
            self.problem = None
            metrics.REGISTRATIONS.increment(self._driver, "registered")
            self._tries.went_well()
            log.info("registered with the kubelet", driver=self._driver)
        self._on_registered(is_registered)
