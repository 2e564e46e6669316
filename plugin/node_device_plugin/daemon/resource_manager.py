"""Manages the served resources; a new configuration affects only the resources that it changes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..cdi.directories import DEFAULT_DIRECTORIES
from ..declaration import Configuration, Resource
from ..declaration.model import devices_behind
from ..devices.events.watch import SWEEP
from ..devices.flap_damping import UNSTEADY
from ..devices.holdings import IN_DOUBT, Holding, renamed, still_meant
from ..devices.scanner import DeviceScanner, Places
from ..devices.table import FORGOTTEN_AFTER, DeviceTable
from ..kubelet import queries
from ..kubelet.checkpoint import CheckpointError
from ..kubelet.device_plugin.frontend import DevicePluginFrontend, Place
from ..kubelet.frontend import Frontend, ResourceStatus
from ..status_api import client
from ..support.bounded_calls import in_thread
from ..support.cancel_safe import result_within
from ..support.task_group import TaskGroup
from ..telemetry.logs import Log

log = Log(__name__)

#: Maximum seconds for an answer of the kubelet or of the other instance.
_ANSWER = 2.0
#: The holder's name for each device that another instance offers.
ANOTHER_INSTANCE = "another instance of the plugin"
#: Maximum number of devices that one log line names.
_MOST_TOLD = 10
#: For this many seconds after a rename, an Allocate under the former name may still finish.
_DOUBT = 10.0


class ServedResource(NamedTuple):
    """One resource: its devices, and its status with the kubelet."""

    name: str
    table: DeviceTable
    status: ResourceStatus


class Change(NamedTuple):
    """The resource names, grouped by a reload's effect. changed: the resource changed, but its stream stayed open."""

    added: tuple[str, ...]
    changed: tuple[str, ...]
    registered_again: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[str, ...]

    def __str__(self) -> str:
        parts = [
            "{} {}".format(what.replace("_", " "), " ".join(names)) for what, names in zip(self._fields, self) if names
        ]
        return "; ".join(parts) or "no resources"


class _Answer(NamedTuple):
    """The holdings of containers. doubts: the scanner's doubts that the answer covers."""

    holdings: Sequence[Holding]
    doubts: int


class ResourceManager:
    """Offers the resources of a configuration to the kubelet.

    tasks: runs the frontend. scanner: scans the devices. overlaps: whether another
    instance may also serve.
    """

    def __init__(self, tasks: TaskGroup, scanner: DeviceScanner, overlaps: bool = False) -> None:
        #: When the last full scan ended (time.monotonic); None before the first scan.
        self.checked_at: float | None = None
        #: The tables by resource name, in the order of the configuration.
        self._served: dict[str, DeviceTable] = {}
        self._tasks = tasks
        self._scanner = scanner
        self._overlaps = overlaps
        self._one_at_a_time = asyncio.Lock()
        self._place: Place | None = None
        #: Known holdings of containers; time of the last request; end of the repeated requests.
        self._holdings: Sequence[Holding] = ()
        self._asked_at = self._in_doubt_until = 0.0
        #: The names of all resources that this process has ever served.
        self._own: set[str] = set()
        self._frontend: Frontend | None = None
        self._frontend_task: asyncio.Task[Any] | None = None

    @property
    def tables(self) -> list[DeviceTable]:
        """The device table of each resource."""
        return list(self._served.values())

    def served(self) -> list[ServedResource]:
        """Every resource with its table and its status with the kubelet."""
        frontend = self._frontend
        if frontend is None:
            return []
        return [ServedResource(name, table, frontend.status(name)) for name, table in self._served.items()]

    async def all_served(self) -> None:
        """Return once the kubelet can reach every resource."""
        if self._frontend is not None:
            await self._frontend.all_served()

    @property
    def are_steady(self) -> bool:
        """Whether no flapping device waits to become stable. Only another scan ends this wait."""
        return not any(table.reason(device) == UNSTEADY for table in self.tables for device in table.resource.devices)

    async def apply(self, configuration: Configuration) -> Change:
        """Serve the resources of this configuration, and return what changed.

        A changed resource keeps its server and its stream, unless its plugin options or the way to the kubelet change.
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
        served: dict[str, DeviceTable] = {}
        for resource in configuration.resources:
            table = before.get(resource.name)
            if table is None or not is_same_place or (table.declared, table.recovery_delay) != (resource, delay):
                table = DeviceTable(resource, delay, former=table, without_room=frontend.without_room)
            served[resource.name] = table
        kept = tuple(name for name, table in served.items() if table is before.get(name))
        new = {name: table for name, table in served.items() if name not in kept}
        # Scan before the offer, so that no pod requests a resource whose devices are unknown. Scan
        # unchanged resources also, because a device belongs to only one resource.
        self._places = _places(configuration)
        await self._keep_redefined(served, before)
        await self._look(served)
        removed = tuple(name for name in before if name not in served)
        former, now = ([table.resource for table in each.values()] for each in (before, served))
        moved = await in_thread(renamed, former, now, self._scanner.links.real, self._scanner.specs)
        await self._learn_holders(served, place, is_sure=not before, doubtful=moved)
        await self._run(frontend, place)
        await asyncio.gather(*map(frontend.withdraw, removed))
        went_on = await self._offer(frontend, {name: each for name, each in new.items() if name in before})
        if before and (new or removed):
            # From now on no new pod gets a device by a former name, so the next answer is complete.
            await self._learn_holders(served, place, is_sure=True)
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
            kept=kept,
        )

    async def _offer(self, frontend: Frontend, offers: Mapping[str, DeviceTable]) -> dict[str, bool]:
        """Offer these resources. Returns, by name, whether the kubelet's connection continues."""
        return dict(zip(offers, await asyncio.gather(*map(frontend.offer, offers.values()))))

    async def _run(self, frontend: Frontend, place: Place) -> None:
        """Start this frontend; if it is new, stop the former frontend first."""
        if frontend is self._frontend:
            return
        if self._frontend_task is not None:
            await self._tasks.stop(self._frontend_task)
        self._place, self._frontend = place, frontend
        self._frontend_task = self._tasks.start(frontend.run())

    async def is_news(self) -> bool:
        """Whether the last events of the watch require a ``check``."""
        return await self._scanner.is_news(self._places)

    async def check(self) -> None:
        """Scan every device."""
        # Wait while a new configuration is applied. Otherwise, former tables would get devices of
        # other resources.
        async with self._one_at_a_time:
            await self._look(self._served)
            self.checked_at = time.monotonic()

    async def _look(self, served: Mapping[str, DeviceTable]) -> None:
        await self._scanner.scan(list(served.values()), self._places, self._holdings)

    async def ask_for_holders(self) -> None:
        """Ask for the holders if a device is or may be held under another name, or if the last answer is old."""
        served, place, now = self._served, self._place, time.monotonic()
        is_due = now < self._in_doubt_until or now - self._asked_at > SWEEP
        if place is None or not (is_due or any(table.is_any_held for table in self.tables)):
            return
        # Ask outside the lock, because the kubelet may be slow. If a new configuration was applied
        # meanwhile, ignore the answer.
        answer = await self._ask(place, self._places)
        if answer is None and time.monotonic() < self._in_doubt_until:
            return
        async with self._one_at_a_time:
            if served is self._served:
                # If there is no answer, the known holdings stay and the doubt about former names ends.
                self._learn(answer)
                await self._tell(served, is_sure=True)

    async def _learn_holders(
        self,
        served: Mapping[str, DeviceTable],
        place: Place,
        is_sure: bool,
        doubtful: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Mark devices held under other names. Without an answer, the known holdings stay."""
        answer = await self._ask(place, self._places)
        self._learn(answer)
        if answer is not None or doubtful:
            await self._tell(served, is_sure and answer is not None, doubtful)

    def _learn(self, answer: _Answer | None) -> None:
        if answer is not None:
            self._holdings = answer.holdings
            self._scanner.end_doubts(answer.doubts)

    async def _tell(
        self,
        served: Mapping[str, DeviceTable],
        is_sure: bool,
        doubtful: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Mark the held devices. is_sure: ``_holdings`` includes all pods that may need a CDI name's former meaning."""
        kept = self._scanner.kept
        self._scanner.doubtful = doubtful or {}
        if is_sure:
            self._scanner.kept = still_meant(kept, self._holdings)
        if len(self._scanner.kept) < len(kept):
            # Write a released name's new meaning to the specs before its device is offered.
            await self._look(served)
        else:
            await self._scanner.tell_held(list(served.values()), self._holdings)

    async def _keep_redefined(self, served: Mapping[str, DeviceTable], former: Mapping[str, DeviceTable]) -> None:
        """Keep the former meaning of redefined CDI names until their holders are known."""
        if self._scanner.writes:
            now, before = ([each.declared for each in those.values()] for those in (served, former))
            names = await self._scanner.redefined(now, before, self._places)
            self._scanner.kept = {**dict.fromkeys(names, IN_DOUBT), **self._scanner.kept}

    async def _ask(self, place: Place, places: Places) -> _Answer | None:
        """The holdings of containers. If they are unknown, logs the reason and returns None.

        If the kubelet does not answer, reads the kubelet's checkpoint, which lists every allocated device.
        """
        directory, links = place.device_plugin_dir, self._scanner.links
        specs = places.specs or (*DEFAULT_DIRECTORIES, places.cdi)
        self._asked_at, doubts = time.monotonic(), self._scanner.doubts
        try:
            try:
                state = await result_within(queries.holders(place.kubelet_root, directory, specs, links), _ANSWER)
            except asyncio.TimeoutError:
                state = await queries.checkpointed_holders(directory, specs, links, f"no answer in {_ANSWER:g} s")
        except (CheckpointError, OSError) as error:
            log.warning("cannot find out which devices pods hold under other names", error=error)
            return None
        found = queries.holdings(state, self._own)
        return _Answer(found if self._scanner.writes else found + await self._offered_by_another(place), doubts)

    async def _offered_by_another(self, place: Place) -> list[Holding]:
        """The devices that the leader offers; its configuration may use other names for them."""
        try:
            state = await result_within(client.ask(place.device_plugin_dir, "GET", "/status"), _ANSWER)
        except (client.NotAnswering, asyncio.TimeoutError) as error:
            why = str(error) or f"no answer in {_ANSWER:g} s"
            log.warning("cannot find out which devices the other instance offers under other names", error=why)
            return []
        devices = [device for resource in state["resources"] for device in resource["devices"]]
        await self._scanner.links.look_at(path for device in devices for path in device["host_paths"])
        return [
            Holding(
                ANOTHER_INSTANCE,
                resource["name"],
                device["kubelet_ids"][0],
                frozenset(map(self._scanner.links.real, device["host_paths"])),
                is_share=len(device["kubelet_ids"]) > 1,
            )
            for resource in state["resources"]
            for device in resource["devices"]
        ]

    async def take_over(self) -> None:
        """Write the CDI specs from now on, and send the kubelet every device list again."""
        self._scanner.writes = True
        await self._keep_redefined(self._served, {})
        await self.ask_for_holders()
        await self.check()
        if self._frontend is not None:
            self._frontend.repeat()

    async def prune(self) -> None:
        """Forget long-gone devices and remove orphans from our dynamic CDI specs, unless a pod holds them.

        Does nothing while another instance writes the specs, because that instance prunes them.
        """
        if not self._scanner.writes:
            return
        before, places, place = [table.resource for table in self.tables], self._places, self._place
        # The kubelet's answer is valid only for devices that were long gone before the question.
        gone = frozenset().union(*(table.long_gone() for table in self.tables))
        # Ask outside the lock: a slow kubelet must delay neither a scan nor a reload.
        held = await self._held_of_orphans(before, bool(gone))
        async with self._one_at_a_time:
            if held is not None and (self._places, self._place) == (places, place):
                self._forget(gone.difference(*map(devices_behind, held)))
                # Keep the devices of both configurations, because a pod may have received a device since the answer.
                await self._scanner.prune([*before, *(table.resource for table in self.tables)], held, places)

    def _forget(self, device_ids: frozenset[str]) -> None:
        for table in self.tables:
            # A device may have come back since the question.
            forgotten = sorted(table.long_gone() & device_ids)
            if forgotten:
                table.forget(forgotten)
                log.info(
                    "removed devices that have been gone for too long",
                    resource=table.resource.name,
                    seconds=FORGOTTEN_AFTER,
                    count=len(forgotten),
                    devices=forgotten[:_MOST_TOLD],
                )

    async def _held_of_orphans(self, resources: Sequence[Resource], is_any_gone: bool) -> list[str] | None:
        """The held ids; empty if there is nothing to remove; None, with a log line, if unknown."""
        places, place = self._places, self._place
        if place is None:
            return None
        try:
            if not (is_any_gone or await self._scanner.has_orphans(resources, places)):
                return []
            state = await queries.holders(
                place.kubelet_root, place.device_plugin_dir, places.specs, self._scanner.links
            )
        except (CheckpointError, OSError) as error:
            log.warning("cannot check the CDI specs for orphans; all specs stay", directory=places.cdi, error=error)
            return None
        return [each.device for each in state.held]


def _places(configuration: Configuration) -> Places:
    specs = configuration.cdi_spec_dirs
    return Places(configuration.dynamic_cdi_dir, (*specs, configuration.dynamic_cdi_dir) if specs else ())
