"""The stand-in's second registration path: finds sockets in ``plugins_registry``, and asks each socket for its plugin.

Follows pkg/kubelet/pluginmanager of Kubernetes 1.36. Path and creation time identify a socket. The reconciler first
deregisters sockets that are gone or replaced, then registers new sockets. It ignores dotfiles.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections.abc import Iterable

from node_device_plugin.support.channels import grpc, unix_channel
from node_device_plugin.wire import plugin_registration_v1_pb2 as registry
from node_device_plugin.wire import plugin_registration_v1_pb2_grpc as registry_grpc

from . import klog
from .plugin_clients import CallError, PluginClients

DIRECTORY = "plugins_registry"
#: Timeouts in seconds of GetInfo and NotifyRegistrationStatus.
_GET_INFO, _NOTIFY = 1.0, 5.0
#: Seconds between two runs of the reconciler.
_INTERVAL = 1.0

#: Distinguishes a socket from a later socket at the same path.
_Identity = tuple[int, ...]


class PluginWatcher:
    """The reconciler. root: the kubelet's root directory. clients: plugins from both registration paths."""

    def __init__(self, root: str, clients: PluginClients, interval: float = _INTERVAL) -> None:
        self.folder = os.path.join(root, DIRECTORY)
        self._clients = clients
        self._interval = interval
        self._registered: dict[str, tuple[_Identity, str, str]] = {}
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Create the directory, and start the reconciler."""
        os.makedirs(self.folder, mode=0o750, exist_ok=True)
        self._task = asyncio.ensure_future(self._run())

    async def stop(self) -> None:
        """Stop the reconciler; sockets stay."""
        task, self._task = self._task, None
        # Cancel repeatedly, because a call that ends at the same moment may swallow the cancellation.
        while task is not None and not task.done():
            task.cancel()
            await asyncio.wait([task], timeout=0.1)
        self._registered = {}

    async def _run(self) -> None:
        while True:
            await self._reconcile()
            await asyncio.sleep(self._interval)

    async def _reconcile(self) -> None:
        present = dict(self._sockets())
        for path, (identity, resource, endpoint) in list(self._registered.items()):
            if present.get(path) != identity:
                klog.info(0, "Deregistering plugin", plugin=resource, endpoint=endpoint)
                await self._clients.deregister(resource, endpoint)
                del self._registered[path]
        for path, identity in present.items():
            if path not in self._registered:
                taken_in = await self._take_in(path)
                if taken_in is not None:
                    self._registered[path] = (identity, *taken_in)

    def _sockets(self) -> Iterable[tuple[str, _Identity]]:
        for entry in os.scandir(self.folder):
            with contextlib.suppress(FileNotFoundError):
                status = entry.stat()
                if stat.S_ISSOCK(status.st_mode) and not entry.name.startswith("."):
                    yield entry.path, (status.st_ino, status.st_ctime_ns)

    async def _take_in(self, path: str) -> tuple[str, str] | None:
        """Register a plugin; returns its resource and endpoint, or None if the registration must be retried."""
        async with unix_channel(path) as channel:
            plugin = registry_grpc.RegistrationStub(channel)
            try:
                info: registry.PluginInfo = await plugin.GetInfo(registry.InfoRequest(), timeout=_GET_INFO)
                error = ""
                try:
                    if info.type != "DevicePlugin":
                        raise CallError("no handler registered for plugin type: %s at socket %s" % (info.type, path))
                    await self._clients.connect(info.name, info.endpoint or path, list(info.supported_versions))
                except CallError as problem:
                    error = "RegisterPlugin error -- %s" % problem
                    klog.error("RegisterPlugin error", problem, socket=path)
                await plugin.NotifyRegistrationStatus(
                    registry.RegistrationStatus(plugin_registered=not error, error=error), timeout=_NOTIFY
                )
            except grpc.aio.AioRpcError as problem:
                klog.error("RegisterPlugin error", problem.details() or "", socket=path)
                return None
        return None if error else (info.name, info.endpoint or path)
