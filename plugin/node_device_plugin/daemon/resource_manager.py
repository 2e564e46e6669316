"""The resources that are being served; another configuration touches only what it changes."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from ..declaration import Configuration, Resource
from ..devices.flap_damping import UNSTEADY
from ..devices.ids import DeviceIds
from ..devices.scanner import Inventory, Places
from ..devices.table import DeviceTable
from ..kubelet.device_plugin.kubelet_socket import KubeletSocket
from ..kubelet.device_plugin.measured import MeasuredDevicePlugin
from ..kubelet.device_plugin.registration import Registration
from ..kubelet.device_plugin.server import options
from ..kubelet.plugin_watcher import RegistryRegistration
from ..support.task_group import Tasks


class Manner(NamedTuple):
    """What of a configuration, beside the resource itself, a resource is served by."""

    registration: str
    device_plugin_dir: str
    kubelet_root: str


class Served(NamedTuple):
    """One resource as it was declared, with its table, its connection to the kubelet, and the task that keeps it."""

    declared: Resource
    manner: Manner
    recovery_delay: int
    table: DeviceTable
    registration: Union[Registration, RegistryRegistration]
    task: asyncio.Task[Any]


class Change(NamedTuple):
    """What another configuration changed: names of resources. changed: on the stream that the kubelet has open."""

    added: Tuple[str, ...]
    changed: Tuple[str, ...]
    registered_anew: Tuple[str, ...]
    removed: Tuple[str, ...]
    kept: Tuple[str, ...]

    def __str__(self) -> str:
        parts = [
            "%s %s" % (what.replace("_", " "), " ".join(names)) for what, names in zip(self._fields, self) if names
        ]
        return "; ".join(parts) or "no resources"


class ServedResources:
    """Resources by name, in the order of the configuration.

    tasks: where each gets a task of its own. inventory: looks at their devices.
    """

    def __init__(self, tasks: Tasks, inventory: Inventory) -> None:
        self.by_name: Dict[str, Served] = {}
        #: When the devices were last looked at as a whole (time.monotonic); None before the first time.
        self.checked_at: Optional[float] = None
        self._tasks = tasks
        self._inventory = inventory
        self._one_at_a_time = asyncio.Lock()
        self._ids = DeviceIds()
        self._kubelet: Optional[KubeletSocket] = None

    @property
    def tables(self) -> List[DeviceTable]:
        return [served.table for served in self.by_name.values()]

    @property
    def registrations(self) -> List[Union[Registration, RegistryRegistration]]:
        return [served.registration for served in self.by_name.values()]

    @property
    def are_steady(self) -> bool:
        """Whether no device waits to be trusted again, which nothing but another look will tell."""
        return not any(table.reason(device) == UNSTEADY for table in self.tables for device in table.resource.devices)

    async def apply(self, configuration: Configuration) -> Change:
        """Serve what is configured. A resource keeps its server and its stream, whatever of it changes.

        Unless it is to be served elsewhere, or its options differ: the kubelet takes these with a registration alone.
        """
        async with self._one_at_a_time:
            return await self._apply(configuration)

    async def _apply(self, configuration: Configuration) -> Change:
        manner = Manner(
            configuration.registration,
            configuration.kubelet_device_plugin_dir,
            configuration.kubelet_root_dir,
        )
        delay = configuration.recovery_delay
        names = [resource.name for resource in configuration.resources]
        kept = {
            resource.name: self.by_name[resource.name]
            for resource in configuration.resources
            if resource.name in self.by_name and self.by_name[resource.name][:3] == (resource, manner, delay)
        }
        old = {name: served for name, served in self.by_name.items() if name not in kept}
        # First all ids that become free, then the new claims: a device may move to another resource.
        for name in old:
            self._ids.release(name)
        tables = {
            resource.name: (
                resource,
                DeviceTable(
                    resource, self._ids, delay, former=old[resource.name].table if resource.name in old else None
                ),
            )
            for resource in configuration.resources
            if resource.name not in kept
        }
        # What is new is checked before anybody is told of it: no pod meets a resource whose devices are not known yet.
        # What stays is looked at too: a device belongs to one resource.
        self._places = _places(configuration)
        await self._inventory.look(
            [tables.get(name) or (kept[name].declared, kept[name].table) for name in names], self._places
        )
        changed = {
            name: old[name]._replace(declared=resource, recovery_delay=delay, table=table)
            for name, (resource, table) in tables.items()
            if name in old and old[name].manner == manner and options(old[name].declared) == options(resource)
        }
        await self._stop(served for name, served in old.items() if name not in changed)
        for served in changed.values():
            served.registration.service.adopt(served.table)
        if self._kubelet is None or self._kubelet.directory != manner.device_plugin_dir:
            if self._kubelet is not None:
                self._kubelet.close()
            self._kubelet = KubeletSocket(manner.device_plugin_dir)
        started = {
            name: self._start(resource, manner, delay, table, self._kubelet)
            for name, (resource, table) in tables.items()
            if name not in changed
        }
        self.by_name = {name: kept.get(name) or changed.get(name) or started[name] for name in names}
        if self.checked_at is None:
            self.checked_at = time.monotonic()
        return Change(
            added=tuple(name for name in started if name not in old),
            changed=tuple(changed),
            registered_anew=tuple(name for name in started if name in old),
            removed=tuple(name for name in old if name not in tables),
            kept=tuple(kept),
        )

    def _start(
        self, resource: Resource, manner: Manner, delay: int, table: DeviceTable, kubelet: KubeletSocket
    ) -> Served:
        service = MeasuredDevicePlugin(table)
        registration: Union[Registration, RegistryRegistration] = (
            Registration(service, kubelet)
            if manner.registration == "device_plugins"
            else RegistryRegistration(service, manner.kubelet_root)
        )
        return Served(resource, manner, delay, table, registration, self._tasks.start(registration.run()))

    async def _stop(self, ending: Iterable[Served]) -> None:
        tasks = [served.task for served in ending]
        if tasks:
            await self._tasks.stop(*tasks)

    async def is_news(self) -> bool:
        """Whether what the watch told of last calls for ``check``."""
        return await self._inventory.is_news(self._places)

    async def check(self) -> None:
        """Look at every device."""
        # Not while another configuration is taken in: tables that end would claim their ids again.
        async with self._one_at_a_time:
            await self._inventory.look([(each.declared, each.table) for each in self.by_name.values()], self._places)
            self.checked_at = time.monotonic()

    async def prune(self) -> None:
        """Take away what our dynamic CDI specs hold for nobody."""
        before, places = [table.resource for table in self.tables], self._places
        # Asked first: a kubelet that is slow to answer holds up neither a look nor a reload.
        held = await self._inventory.holders_of_orphans(before, places)
        async with self._one_at_a_time:
            if held is not None and self._places == places:
                # What either configuration has stays: pods may have been given it since the kubelet was asked.
                await self._inventory.prune([*before, *(table.resource for table in self.tables)], held, places)


def _places(configuration: Configuration) -> Places:
    specs = configuration.cdi_spec_dirs
    return Places(
        configuration.dynamic_cdi_dir,
        configuration.kubelet_root_dir,
        configuration.kubelet_device_plugin_dir,
        (*specs, configuration.dynamic_cdi_dir) if specs else (),
    )
