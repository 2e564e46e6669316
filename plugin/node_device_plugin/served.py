"""The resources that are being served; another configuration touches only what it changes."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple

from . import health
from .declaration import Configuration, Resource
from .device_ids import DeviceIds
from .device_table import DeviceTable
from .kubelet_socket import KubeletSocket
from .observability.measured import MeasuredDevicePlugin
from .registration import Registration
from .supervision import Tasks

log = logging.getLogger(__name__)


class Served(NamedTuple):
    """One resource as it was declared, with its table, its connection to the kubelet, and the task that keeps it."""

    declared: Resource
    directory: str
    table: DeviceTable
    registration: Registration
    task: asyncio.Task[Any]


class Change(NamedTuple):
    """What another configuration changed: names of resources."""

    added: Tuple[str, ...]
    changed: Tuple[str, ...]
    removed: Tuple[str, ...]
    kept: Tuple[str, ...]

    def __str__(self) -> str:
        parts = ["%s %s" % (what, " ".join(names)) for what, names in zip(self._fields, self) if names]
        return "; ".join(parts) or "no resources"


class ServedResources:
    """Resources by name, in the order of the configuration. tasks: where each gets a task of its own."""

    def __init__(self, tasks: Tasks) -> None:
        self.by_name: Dict[str, Served] = {}
        #: When the devices were last looked at as a whole (time.monotonic); None before the first time.
        self.checked_at: Optional[float] = None
        self._tasks = tasks
        self._ids = DeviceIds()
        self._kubelet: Optional[KubeletSocket] = None

    @property
    def tables(self) -> List[DeviceTable]:
        return [served.table for served in self.by_name.values()]

    @property
    def registrations(self) -> List[Registration]:
        return [served.registration for served in self.by_name.values()]

    async def apply(self, configuration: Configuration) -> Change:
        """Serve what is configured. A resource that is the same as before keeps its server and its stream.

        One that differs is served anew: its options and its devices are told to the kubelet together.
        """
        directory = configuration.kubelet_device_plugin_dir
        names = [resource.name for resource in configuration.resources]
        kept = {
            resource.name: self.by_name[resource.name]
            for resource in configuration.resources
            if resource.name in self.by_name
            and (self.by_name[resource.name].declared, self.by_name[resource.name].directory) == (resource, directory)
        }
        old = {name: served for name, served in self.by_name.items() if name not in kept}
        # First all ids that become free, then the new claims: a device may move to another resource.
        for name in old:
            self._ids.release(name)
        tables = {
            resource.name: (resource, DeviceTable(resource, self._ids))
            for resource in configuration.resources
            if resource.name not in kept
        }
        # What is new is checked before the old stream ends, so that the kubelet is without its devices for a moment.
        await _check([table for _, table in tables.values()])
        await self._stop(old.values())
        if self._kubelet is None or self._kubelet.directory != directory:
            self._kubelet = KubeletSocket(directory)
        started = {name: self._start(resource, self._kubelet, table) for name, (resource, table) in tables.items()}
        self.by_name = {name: kept.get(name) or started[name] for name in names}
        if self.checked_at is None:
            self.checked_at = time.monotonic()
        return Change(
            added=tuple(name for name in started if name not in old),
            changed=tuple(name for name in started if name in old),
            removed=tuple(name for name in old if name not in started),
            kept=tuple(kept),
        )

    def _start(self, resource: Resource, kubelet: KubeletSocket, table: DeviceTable) -> Served:
        registration = Registration(MeasuredDevicePlugin(table), kubelet)
        return Served(resource, kubelet.directory, table, registration, self._tasks.start(registration.run()))

    async def _stop(self, ending: Iterable[Served]) -> None:
        tasks = [served.task for served in ending]
        if tasks:
            await self._tasks.stop(*tasks)

    async def check(self) -> None:
        """Look at every device."""
        await _check(self.tables)
        self.checked_at = time.monotonic()


async def _check(tables: Iterable[DeviceTable]) -> None:
    """Look at the devices of each table, and log what is news."""
    for table in tables:
        for device, reason in table.update(await asyncio.to_thread(health.check, table.resource)):
            if reason is None:
                log.info("%s: device %s is healthy", table.resource.name, device.id)
            else:
                log.warning("%s: device %s is unhealthy: %s", table.resource.name, device.id, reason)
