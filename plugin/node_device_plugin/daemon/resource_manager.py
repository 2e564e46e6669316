"""Manages the served resources; a new configuration affects only the resources that it changes."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..cdi.directories import DEFAULT_DIRECTORIES
from ..declaration import Configuration, Device, Resource
from ..declaration.model import ContainerEdits, devices_behind
from ..devices import record
from ..devices.events.watch import SWEEP
from ..devices.flap_damping import UNSTEADY
from ..devices.given import IN_DOUBT
from ..devices.holdings import Holding
from ..devices.scanner import DeviceScanner, Places
from ..devices.table import FORGOTTEN_AFTER, GONE, DeviceTable
from ..kubelet import queries
from ..kubelet.checkpoint import CheckpointError
from ..kubelet.device_plugin.frontend import DevicePluginFrontend, Place
from ..kubelet.frontend import Frontend, ResourceStatus
from ..status_api import client
from ..support.bounded_calls import Key
from ..support.cancel_safe import result_within
from ..support.sockets import SOCKET_DIRECTORY
from ..support.task_group import TaskGroup
from ..telemetry.logs import Log, Tries

log = Log(__name__)

#: Maximum seconds for an answer of the kubelet or of the other instance.
_ANSWER = 2.0
#: The holder's name for each device that another instance offers.
ANOTHER_INSTANCE = "another instance of the plugin"
#: Maximum seconds for the registration of removed resources that pods hold, and seconds between two looks.
_RETIRING, _LOOK = 5.0, 0.05
#: Maximum number of devices that one log line names.
_MOST_TOLD = 10


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
    """The holdings of containers.

    question: see Given.ask. allocatable: the resources with a device that the kubelet may give out; none if no kubelet
    answers. is_by_kubelet: whether a kubelet answered.
    """

    holdings: Sequence[Holding]
    question: int
    allocatable: frozenset[str]
    is_by_kubelet: bool


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
        #: Removed resources that containers hold: without them, the kubelet starts no container again after 5 minutes.
        self._retired: dict[str, DeviceTable] = {}
        #: Failures are logged once a change: of the questions to the kubelet, to another instance, and about orphans.
        self._asking, self._asking_other, self._pruning = (Tries(log) for _each in range(3))
        #: When the kubelet was last asked for the holders of devices.
        self._asked_at = 0.0
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

    def missed(self, name: str) -> dict[str, str]:
        """The devices of a resource that were offered since the boot and are gone, each with the reason."""
        table = self._served[name]
        shown = {device.id: reason for device, reason in table.shown()}
        missed = sorted(self._scanner.given.missed.items())
        return {
            device_id: shown.get(device_id) or GONE
            for (resource, device_id), accepted in missed
            if resource == name and not accepted
        }

    async def forget_lost(self) -> None:
        """Expect the devices no longer that are gone. Their ids stay until they may be forgotten."""
        async with self._one_at_a_time:
            self._scanner.given.accept_losses(self._served)
            await self._look(self._served)

    async def all_retired(self) -> None:
        """Wait until the kubelet knows that every removed resource needs no plugin to start a container again."""
        frontend, deadline = self._frontend, time.monotonic() + _RETIRING
        while frontend is not None and time.monotonic() < deadline:
            if all(frontend.status(name).is_registered for name in self._retired):
                return
            await asyncio.sleep(_LOOK)

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
        former = self._frontend if is_same_place else None
        frontend = former if former is not None else DevicePluginFrontend(place, self)
        before, delay = self._served, configuration.recovery_delay
        served: dict[str, DeviceTable] = {}
        for resource in configuration.resources:
            table = before.get(resource.name)
            if table is None or not is_same_place or (table.declared, table.recovery_delay) != (resource, delay):
                table = DeviceTable(resource, delay, former=table, without_room=frontend.without_room)
            served[resource.name] = table
        kept = tuple(name for name, table in served.items() if table is before.get(name))
        new = {name: table for name, table in served.items() if name not in kept}
        removed = tuple(name for name in before if name not in served)
        self._places = _places(configuration)
        await self._scanner.load_record(configuration.resources, self._places)
        # Scan, withdraw, ask, offer: the scan withholds each device whose meaning changes, until the kubelet says who
        # holds the device. Scan unchanged resources also, because a device belongs to only one resource.
        await self._look(served)
        await self._run(frontend, place)
        for name in self._retired.keys() & served.keys():
            del self._retired[name]
        for name in removed if former is not None else ():
            if not self._scanner.writes:
                # The leader keeps what is held. Its own list must not be replaced by one without a free device.
                await frontend.withdraw(name)
                continue
            former_resource = before[name].resource
            shares = (each for device, _reason in before[name].shown() for each in former_resource.kubelet_ids(device))
            await self._retire(name, dict.fromkeys(shares, IN_DOUBT))
        self._served = served
        answer = await self._ask(place, self._places)
        await self._judge(answer)
        # Until the new table is offered, a container may get a device with its former meaning.
        await self._scanner.judge_again(self.tables)
        went_on = await self._offer(frontend, {name: each for name, each in new.items() if name in before})
        # What another selector does not find any more is not lost.
        selects = {name: table.declared.discover for name, table in served.items()}
        other = [name for name, table in before.items() if table.declared.discover != selects.get(name)]
        self._scanner.given.accept_losses(other)
        await self._scanner.judge_again(self.tables)
        await self._offer(frontend, {name: each for name, each in new.items() if name not in before})
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
        return {name: await frontend.offer(table) for name, table in offers.items()}

    async def _run(self, frontend: Frontend, place: Place) -> None:
        """Start this frontend; if it is new, stop the former frontend first."""
        if frontend is self._frontend:
            return
        self._retired.clear()
        if self._frontend_task is not None:
            await self._tasks.stop(self._frontend_task)
        self._place, self._frontend = place, frontend
        self._frontend_task = self._tasks.start(frontend.run())

    async def is_news(self) -> bool:
        """Whether the last events of the watch require a ``check``."""
        return await self._scanner.is_news(self._places)

    async def check(self) -> None:
        """Scan every device; if a device means something else now, ask the kubelet who holds it."""
        # Wait while a new configuration is applied. Otherwise, former tables would get devices of
        # other resources.
        async with self._one_at_a_time:
            await self._look(self._served)
            self.checked_at = time.monotonic()
        if self._scanner.given.is_any_open:
            await self.ask_for_holders()

    async def _look(self, served: Mapping[str, DeviceTable]) -> None:
        await self._scanner.scan(list(served.values()), self._places)

    async def ask_for_holders(self) -> None:
        """Ask for the holders if a device is or may be held under another name, or if the last answer is old."""
        is_held = bool(self._retired) or any(table.is_any_held for table in self.tables)
        is_due = self._scanner.given.is_any_open or time.monotonic() - self._asked_at > SWEEP
        if self._place is None or not (is_due or is_held):
            return
        served = self._served
        # Ask outside the lock, because the kubelet may be slow. If a new configuration was applied
        # meanwhile, ignore the answer.
        answer = await self._ask(self._place, self._places)
        async with self._one_at_a_time:
            if served is self._served:
                await self._judge(answer)

    async def _judge(self, answer: _Answer | None) -> None:
        """Judge the devices by the holders. Without an answer, the known holders stay, and so does every doubt."""
        if answer is None:
            return
        if await self._scanner.answer(self.tables, self._places, answer.question, answer.holdings):
            # Write a released name's new meaning to the specs before its device is offered.
            await self._look(self._served)
        if self._scanner.writes:
            await self._keep_held(answer)

    async def _keep_held(self, answer: _Answer) -> None:
        """Offer the held devices of removed resources, without a free device, until their holders end.

        If another plugin offers such a resource, its registration stays. Only the kubelet tells whether one does.
        """
        held = self._scanner.given.held_of_others(self._served)
        for name in {*self._retired, *(held if answer.is_by_kubelet else ())} - answer.allocatable:
            if name in held:
                await self._retire(name, held[name])
            elif self._frontend is not None:
                del self._retired[name]
                await self._frontend.withdraw(name)

    async def _retire(self, name: str, reasons: Mapping[str, str]) -> None:
        """Offer only these shares of a removed resource, and none of them as healthy. reasons: by kubelet id."""
        table = self._retired.get(name)
        if table is None or [device.id for device in table.resource.devices] != sorted(reasons):
            devices = tuple(Device(each, (), ContainerEdits(), {}, required=True) for each in sorted(reasons))
            table = self._retired[name] = DeviceTable(Resource(name, name, devices, {}, ContainerEdits(), 1))
            table.update(reasons)
            if self._frontend is not None:
                log.info("a removed resource stays registered until its pods end", resource=name, devices=len(devices))
                await self._frontend.offer(table)
        table.update(reasons)

    def allocated(self, resource: str, kubelet_ids: Sequence[str]) -> None:
        """See Custody."""
        self._scanner.given.allocated(resource, kubelet_ids)

    async def why_changed(self, resource: Resource, kubelet_ids: Sequence[str]) -> str | None:
        """See Custody."""
        given: Sequence[frozenset[str]] = ()
        if self._place is not None:
            read = functools.partial(queries.given_paths, self._place.device_plugin_dir, resource.name, kubelet_ids)
            try:
                given = await self._scanner.links.calls.call(Key("", "what a starting container was given"), read)
            except (CheckpointError, OSError) as error:
                log.warning("cannot read what a starting container was given", resource=resource.name, error=error)
        return await self._scanner.why_changed(resource.name, kubelet_ids, given)

    async def _ask(self, place: Place, places: Places) -> _Answer | None:
        """The holdings of containers. If they are unknown, logs the reason and returns None.

        If the kubelet does not answer, reads the kubelet's checkpoint, which lists every allocated device.
        """
        directory, links = place.device_plugin_dir, self._scanner.links
        specs = places.specs or (*DEFAULT_DIRECTORIES, places.cdi)
        self._asked_at, question = time.monotonic(), self._scanner.given.ask()
        try:
            try:
                state = await result_within(queries.holders(place.kubelet_root, directory, specs, links), _ANSWER)
            except asyncio.TimeoutError:
                state = await queries.checkpointed_holders(directory, specs, links, f"no answer in {_ANSWER:g} s")
        except (CheckpointError, OSError) as error:
            self._asking.failed(logging.WARNING, "cannot find out which devices pods hold", error=error)
            return None
        self._asking.went_well()
        # A thread may change the record now, and a list is made in one step.
        own = self._own.union(resource for resource, _device_id in list(self._scanner.given.record))
        found = queries.holdings(state, own)
        if not self._scanner.writes:
            found += await self._offered_by_another(place)
        is_by_kubelet = state.source == "kubelet"
        free = state.allocatable if is_by_kubelet else {}
        return _Answer(found, question, frozenset(name for name, ids in free.items() if ids), is_by_kubelet)

    async def _offered_by_another(self, place: Place) -> list[Holding]:
        """The devices that the leader offers; its configuration may use other names for them."""
        try:
            state = await result_within(client.ask(place.device_plugin_dir, "GET", "/status"), _ANSWER)
        except (client.NotAnswering, asyncio.TimeoutError) as error:
            why = str(error) or f"no answer in {_ANSWER:g} s"
            self._asking_other.failed(
                logging.WARNING, "cannot find out which devices the other instance offers under other names", error=why
            )
            return []
        self._asking_other.went_well()
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
            if device["kubelet_ids"]
        ]

    async def take_over(self) -> None:
        """Write the CDI specs from now on, and send the kubelet every device list again."""
        async with self._one_at_a_time:
            # During a scan, the record of the ended instance must neither change nor be written over.
            await self._scanner.load_record([table.resource for table in self.tables], self._places, again=True)
            self._scanner.writes = True
            await self._look(self._served)
            if self._place is not None:
                await self._judge(await self._ask(self._place, self._places))
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
            self._pruning.failed(
                logging.WARNING,
                "cannot check the CDI specs for orphans; all specs stay",
                directory=places.cdi,
                error=error,
            )
            return None
        self._pruning.went_well()
        return [each.device for each in state.held]


def _places(configuration: Configuration) -> Places:
    specs = configuration.cdi_spec_dirs
    own = os.path.join(configuration.kubelet_device_plugin_dir, SOCKET_DIRECTORY)
    return Places(
        configuration.dynamic_cdi_dir,
        (*specs, configuration.dynamic_cdi_dir) if specs else (),
        os.path.join(own, record.FILE_NAME),
    )
