"""The resources that are served; another configuration touches only what it changes."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..cdi.writer import Held
from ..declaration import Configuration, Resource
from ..devices.flap_damping import UNSTEADY
from ..devices.scanner import DeviceScanner, Places
from ..devices.table import DeviceTable
from ..kubelet import queries
from ..kubelet.checkpoint import CheckpointError
from ..kubelet.device_plugin.frontend import DevicePluginFrontend, Place
from ..kubelet.frontend import Frontend
from ..status_api.state import ServedResource
from ..support.task_group import TaskGroup

log = logging.getLogger(__name__)


class _Served(NamedTuple):
    """One resource as it was declared, with its table. recovery_delay: seconds."""

    declared: Resource
    recovery_delay: int
    table: DeviceTable


class Change(NamedTuple):
    """What another configuration changed: names of resources. changed: on the stream that the kubelet has open."""

    added: Tuple[str, ...]
    changed: Tuple[str, ...]
    registered_again: Tuple[str, ...]
    removed: Tuple[str, ...]
    kept: Tuple[str, ...]

    def __str__(self) -> str:
        parts = [
            "%s %s" % (what.replace("_", " "), " ".join(names)) for what, names in zip(self._fields, self) if names
        ]
        return "; ".join(parts) or "no resources"


class ResourceManager:
    """Keeps a configuration's resources offered to the kubelet.

    tasks: where a frontend runs. scanner: looks at the devices.
    """

    def __init__(self, tasks: TaskGroup, scanner: DeviceScanner) -> None:
        #: When the devices were last looked at as a whole (time.monotonic); None before the first time.
        self.checked_at: Optional[float] = None
        #: By name, in the order of the configuration.
        self._served: Dict[str, _Served] = {}
        self._tasks = tasks
        self._scanner = scanner
        self._one_at_a_time = asyncio.Lock()
        self._place: Optional[Place] = None
        self._frontend: Optional[Frontend] = None
        self._frontend_task: Optional[asyncio.Task[Any]] = None

    @property
    def tables(self) -> List[DeviceTable]:
        """One for each resource."""
        return [served.table for served in self._served.values()]

    def served(self) -> List[ServedResource]:
        """Every resource with its table and how it stands with the kubelet."""
        frontend = self._frontend
        if frontend is None:
            return []
        return [ServedResource(name, each.table, frontend.status(name)) for name, each in self._served.items()]

    async def all_served(self) -> None:
        """Return once the kubelet can reach every resource."""
        if self._frontend is not None:
            await self._frontend.all_served()

    @property
    def are_steady(self) -> bool:
        """Whether no device waits to be trusted again, which nothing but another look will tell."""
        return not any(table.reason(device) == UNSTEADY for table in self.tables for device in table.resource.devices)

    async def apply(self, configuration: Configuration) -> Change:
        """Serve what is configured. A resource keeps its server and its stream, whatever of it changes.

        Unless it is to be served elsewhere, or the frontend has to register it again.
        """
        async with self._one_at_a_time:
            return await self._apply(configuration)

    async def _apply(self, configuration: Configuration) -> Change:
        place = Place(
            configuration.registration, configuration.kubelet_device_plugin_dir, configuration.kubelet_root_dir
        )
        is_same_place = place == self._place
        frontend = self._frontend if self._frontend is not None and is_same_place else DevicePluginFrontend(place)
        before, delay = self._served, configuration.recovery_delay
        names = [resource.name for resource in configuration.resources]
        kept = {
            resource.name: before[resource.name]
            for resource in configuration.resources
            if is_same_place and resource.name in before and before[resource.name][:2] == (resource, delay)
        }
        new = {
            resource.name: _Served(resource, delay, _table(resource, delay, before.get(resource.name), frontend))
            for resource in configuration.resources
            if resource.name not in kept
        }
        served = {name: kept.get(name) or new[name] for name in names}
        # The scan comes before the offer, so that no pod meets a resource whose devices are unknown. It includes the
        # resources that stay, because a device belongs to one resource.
        self._places = _places(configuration)
        await self._scanner.scan([(each.declared, each.table) for each in served.values()], self._places)
        removed = tuple(name for name in before if name not in served)
        await self._run(frontend, place)
        await asyncio.gather(*map(frontend.withdraw, removed))
        went_on = await asyncio.gather(*(frontend.offer(each.declared, each.table) for each in new.values()))
        self._served = served
        if self.checked_at is None:
            self.checked_at = time.monotonic()
        changed = tuple(name for name, goes_on in zip(new, went_on) if goes_on)
        return Change(
            added=tuple(name for name in new if name not in before),
            changed=changed,
            registered_again=tuple(name for name in new if name in before and name not in changed),
            removed=removed,
            kept=tuple(kept),
        )

    async def _run(self, frontend: Frontend, place: Place) -> None:
        """Have this frontend run, in the place of one for another place."""
        if frontend is self._frontend:
            return
        if self._frontend_task is not None:
            await self._tasks.stop(self._frontend_task)
        self._place, self._frontend = place, frontend
        self._frontend_task = self._tasks.start(frontend.run())

    async def is_news(self) -> bool:
        """Whether what the watch told of last calls for ``check``."""
        return await self._scanner.is_news(self._places)

    async def check(self) -> None:
        """Look at every device."""
        # Not while another configuration is taken in: tables that end would be told of devices of others.
        async with self._one_at_a_time:
            await self._scanner.scan([(each.declared, each.table) for each in self._served.values()], self._places)
            self.checked_at = time.monotonic()

    async def prune(self) -> None:
        """Take away what our dynamic CDI specs hold for nobody."""
        before, places, place = [table.resource for table in self.tables], self._places, self._place
        # Asked first: a kubelet that is slow to answer holds up neither a look nor a reload.
        held = await self._holders_of_orphans(before)
        async with self._one_at_a_time:
            if held is not None and (self._places, self._place) == (places, place):
                # What either configuration has stays: pods may have been given it since the kubelet was asked.
                await self._scanner.prune([*before, *(table.resource for table in self.tables)], held, places)

    async def _holders_of_orphans(self, resources: Sequence[Resource]) -> Optional[List[Held]]:
        """Who holds devices: empty where our dynamic specs have none but the resources'; None, and said, if unknown."""
        places, place = self._places, self._place
        if place is None:
            return None
        try:
            if not await self._scanner.has_orphans(resources, places):
                return []
            state = await queries.holders(place.kubelet_root, place.device_plugin_dir)
        except (CheckpointError, OSError) as error:
            log.warning("CDI specs that may be orphans stay in %s: %s", places.cdi, error)
            return None
        return [Held(each["resource"], each["device"]) for each in state["held"]]


def _table(resource: Resource, delay: int, former: Optional[_Served], frontend: Frontend) -> DeviceTable:
    return DeviceTable(resource, delay, former=former.table if former else None, without_room=frontend.without_room)


def _places(configuration: Configuration) -> Places:
    specs = configuration.cdi_spec_dirs
    return Places(configuration.dynamic_cdi_dir, (*specs, configuration.dynamic_cdi_dir) if specs else ())
