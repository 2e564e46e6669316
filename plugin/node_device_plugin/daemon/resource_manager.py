"""The resources that are served; another configuration touches only what it changes."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from ..cdi.directories import DEFAULT_DIRECTORIES
from ..cdi.writer import Held
from ..declaration import Configuration, Resource
from ..devices.events.watch import SWEEP
from ..devices.flap_damping import UNSTEADY
from ..devices.holdings import Holding, renamed
from ..devices.scanner import DeviceScanner, Places
from ..devices.table import DeviceTable
from ..kubelet import queries
from ..kubelet.checkpoint import CheckpointError
from ..kubelet.device_plugin.frontend import DevicePluginFrontend, Place
from ..kubelet.frontend import Frontend
from ..status_api import client
from ..status_api.state import ServedResource
from ..support.cancel_safe import done_within
from ..support.task_group import TaskGroup

log = logging.getLogger(__name__)

#: Seconds that the kubelet may take to say who holds what.
_ANSWER = 2.0
#: The holder of what the other instance offers, until that has ended.
ANOTHER_INSTANCE = "another instance of the plugin"
#: Seconds after a rename in which an Allocate by the former name may still come to its end.
_DOUBT = 10.0


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

    tasks: where a frontend runs. scanner: looks at the devices. overlaps: whether another instance may serve them, too.
    """

    def __init__(self, tasks: TaskGroup, scanner: DeviceScanner, overlaps: bool = False) -> None:
        #: When the devices were last looked at as a whole (time.monotonic); None before the first time.
        self.checked_at: Optional[float] = None
        #: By name, in the order of the configuration.
        self._served: Dict[str, _Served] = {}
        self._tasks = tasks
        self._scanner = scanner
        self._overlaps = overlaps
        self._one_at_a_time = asyncio.Lock()
        self._place: Optional[Place] = None
        #: What containers hold, as far as it is known, and until when it is asked for time and again.
        self._holdings: Sequence[Holding] = ()
        self._asked_at = self._in_doubt_until = 0.0
        #: Every resource of this process so far.
        self._own: Set[str] = set()
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
        place = Place(
            configuration.registration,
            configuration.kubelet_device_plugin_dir,
            configuration.kubelet_root_dir,
            self._overlaps,
        )
        self._own.update(resource.name for resource in configuration.resources)
        async with self._one_at_a_time:
            return await self._apply(configuration, place)

    async def _apply(self, configuration: Configuration, place: Place) -> Change:
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
        await self._scanner.scan(
            [(each.declared, each.table) for each in served.values()], self._places, self._holdings
        )
        removed = tuple(name for name in before if name not in served)
        tables = [each.table for each in served.values()]
        former = [each.table.resource for each in before.values()]
        moved = await asyncio.to_thread(renamed, former, [table.resource for table in tables])
        await self._learn_holders(tables, place, moved)
        await self._run(frontend, place)
        await asyncio.gather(*map(frontend.withdraw, removed))
        went_on = await self._offer(frontend, {name: each for name, each in new.items() if name in before})
        if before and (new or removed):
            # By their former names devices are given out no longer: now it is sure who holds them.
            await self._learn_holders(tables, place)
            self._in_doubt_until = time.monotonic() + _DOUBT
        await self._offer(frontend, {name: each for name, each in new.items() if name not in before})
        self._served = served
        if self.checked_at is None:
            self.checked_at = time.monotonic()
        changed = tuple(name for name, goes_on in went_on.items() if goes_on)
        return Change(
            added=tuple(name for name in new if name not in before),
            changed=changed,
            registered_again=tuple(name for name in new if name in before and name not in changed),
            removed=removed,
            kept=tuple(kept),
        )

    async def _offer(self, frontend: Frontend, offers: Mapping[str, _Served]) -> Dict[str, bool]:
        """By name, whether the kubelet's connection goes on."""
        answers = await asyncio.gather(*(frontend.offer(each.declared, each.table) for each in offers.values()))
        return dict(zip(offers, answers))

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
            await self._scanner.scan(
                [(each.declared, each.table) for each in self._served.values()], self._places, self._holdings
            )
            self.checked_at = time.monotonic()

    async def ask_for_holders(self) -> None:
        """Ask who holds what if a device is held by another name, may be, or it is long since the last question."""
        served, place, now = self._served, self._place, time.monotonic()
        is_due = now < self._in_doubt_until or now - self._asked_at > SWEEP
        if place is None or not (is_due or any(table.is_any_held for table in self.tables)):
            return
        # Not while another configuration is taken in; and what was asked before it says nothing of it.
        holdings = await self._ask(place, self._places)
        if holdings is None and time.monotonic() < self._in_doubt_until:
            return
        async with self._one_at_a_time:
            if served is self._served:
                # Nobody says it: what was known stays, and a doubt ends.
                self._holdings = self._holdings if holdings is None else holdings
                await self._scanner.tell_held(self.tables, self._holdings)

    async def _learn_holders(
        self, tables: Sequence[DeviceTable], place: Place, doubtful: Optional[Mapping[str, Mapping[str, str]]] = None
    ) -> None:
        """Tell the tables who holds devices by other names; as far as nobody says so, what was known stays."""
        holdings = await self._ask(place, self._places)
        if holdings is not None:
            self._holdings = holdings
        if holdings is not None or doubtful:
            await self._scanner.tell_held(tables, self._holdings, doubtful)

    async def _ask(self, place: Place, places: Places) -> Optional[List[Holding]]:
        """What containers hold; None, and said, if that is unknown.

        A kubelet that does not answer gives nothing out meanwhile, and its checkpoint has what it gave out before.
        """
        directory, specs = place.device_plugin_dir, places.specs or (*DEFAULT_DIRECTORIES, places.cdi)
        answers: List[Dict[str, Any]] = []

        async def ask() -> None:
            answers.append(await queries.holders(place.kubelet_root, directory, specs))

        self._asked_at = time.monotonic()
        try:
            if await done_within(ask(), _ANSWER):
                (state,) = answers
            else:
                state = await queries.checkpointed_holders(directory, specs, "no answer in %g s" % _ANSWER)
        except (CheckpointError, OSError) as error:
            log.warning("nobody knows which devices are held by other names: %s", error)
            return None
        found = queries.holdings(state, self._own)
        return found if self._scanner.writes else found + await self._offered_by_another(place)

    async def _offered_by_another(self, place: Place) -> List[Holding]:
        """What the instance offers that leads; with another configuration it may do so by other names."""
        answers: List[Dict[str, Any]] = []

        async def ask() -> None:
            answers.append(await client.ask(place.device_plugin_dir, "GET", "/status"))

        try:
            if not await done_within(ask(), _ANSWER):
                raise client.NotAnswering("no answer in %g s" % _ANSWER)
        except client.NotAnswering as error:
            log.warning("nobody knows what the other instance offers by other names: %s", error)
            return []
        return [
            Holding(
                ANOTHER_INSTANCE,
                resource["name"],
                device["kubelet_ids"][0],
                frozenset(map(os.path.realpath, device["host_paths"])),
                is_share=len(device["kubelet_ids"]) > 1,
            )
            for resource in answers[0]["resources"]
            for device in resource["devices"]
        ]

    async def take_over(self) -> None:
        """Write the CDI specs from now on, and tell the kubelet of all devices again."""
        self._scanner.writes = True
        await self.ask_for_holders()
        await self.check()
        if self._frontend is not None:
            self._frontend.repeat()

    async def prune(self) -> None:
        """Take away what our dynamic CDI specs hold for nobody; another instance that writes them does it itself."""
        if not self._scanner.writes:
            return
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
            state = await queries.holders(place.kubelet_root, place.device_plugin_dir, places.specs)
        except (CheckpointError, OSError) as error:
            log.warning("CDI specs that may be orphans stay in %s: %s", places.cdi, error)
            return None
        return [Held(each["resource"], each["device"]) for each in state["held"]]


def _table(resource: Resource, delay: int, former: Optional[_Served], frontend: Frontend) -> DeviceTable:
    return DeviceTable(resource, delay, former=former.table if former else None, without_room=frontend.without_room)


def _places(configuration: Configuration) -> Places:
    specs = configuration.cdi_spec_dirs
    return Places(configuration.dynamic_cdi_dir, (*specs, configuration.dynamic_cdi_dir) if specs else ())
