"""Keeps the tables on what is there: discovery, the CDI specs of what was discovered, and health."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import (
    Any,
    Callable,
    NamedTuple,
    TypeVar,
)

from ..cdi import writer
from ..cdi.links import Links, node_paths
from ..declaration import Device, Resource
from ..support.bounded_calls import BoundedCalls, Call, Key, NoAnswer, in_thread
from ..telemetry.logs import Log
from .discovery import Discovered, Discoverer, methods_of
from .discovery.directories import directories, nearest
from .events.watch import Watch
from .health import Health
from .holdings import Holding, held_by_other_names
from .table import DeviceTable

log = Log(__name__)

T = TypeVar("T")

#: As often as directories turn up, during one look, that nobody watched yet.
_MOST_LOOKS = 3
#: Seconds that looking for the devices of one resource, or writing its spec, may take.
_LIMIT = 2.0
_AWAITED = "its CDI spec is written when the other instance on the node has ended"
#: Devices of a resource that are named in the log after one look.
_MOST_TOLD = 10


class Places(NamedTuple):
    """Directories of CDI specs.

    cdi: for the dynamic ones. specs: where the runtime reads CDI specs; empty to leave names unresolved.
    """

    cdi: str
    specs: tuple[str, ...] = ()


class DeviceScanner:
    """Scans the devices, one scan at a time. watch: gets the directories to watch, and wakes the reconcile loop."""

    def __init__(self, watch: Watch) -> None:
        #: Whether this instance writes the CDI specs; while another one does, a device that they lack is not healthy.
        self.writes = True
        #: CDI names that keep in our specs what they meant to whoever holds them, each with the reason.
        self.kept: Mapping[str, str] = {}
        self._watch = watch
        #: A resource with a path or a device that hangs keeps what is known of it, and holds up no other one.
        self._calls = BoundedCalls(_LIMIT)
        #: What device nodes lead to, and what held devices did.
        self.links = Links(self._calls)
        self._discoverer = Discoverer(self.links)
        self._health = Health(on_news=watch.wake)
        self._one_at_a_time = asyncio.Lock()
        self._left_out: dict[str, list[tuple[str, str]]] = {}
        #: Resource to what hangs, as it was told last.
        self._late: Mapping[str, str] = {}
        self._directories: dict[str, frozenset[str]] = {}
        self._spec_directories: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        self._written: dict[str, writer.Written | None] = {}
        #: Directories that are watched for their specs alone.
        self._for_specs: frozenset[str] = frozenset()

    async def close(self) -> None:
        """End what the checks have started."""
        await self._health.close()

    async def scan(self, tables: Sequence[DeviceTable], places: Places, holdings: Sequence[Holding] = ()) -> None:
        """Look at everything and tell the tables. tables: all of a configuration. holdings: what containers hold."""
        async with self._one_at_a_time:
            discoveries = [table.declared.discover for table in tables]
            buses = any(method.needs_uevents for discovery in discoveries for method in methods_of(discovery))
            # Watching comes before looking, so that nothing is missed. What a look finds may lie elsewhere.
            for _look in range(_MOST_LOOKS):
                current = [table.resource for table in tables]
                watched = await self._directories_of(current)
                specs, missing = await self._directories_of_specs(places)
                await self._watch.look_at(watched | missing, buses, specs)
                self._for_specs = specs - watched - missing
                await self._scan(tables, places, holdings)
                found = [table.resource for table in tables]
                # Devices that are the same lie where they lay, or there is news already.
                if found == current or self._watch.covers(await self._directories_of(found)):
                    return

    async def _directories_of(self, resources: Sequence[Resource]) -> frozenset[str]:
        """What is to be watched for these resources; of one that hangs what was watched before."""
        await self.links.look_at(node_paths(resources))
        answers = await self._calls.run(
            [
                (Key(resource.name, "its directories"), functools.partial(directories, resource, self.links))
                for resource in resources
            ]
        )
        before, self._directories = self._directories, {}
        for key, answer in answers.items():
            if isinstance(answer, NoAnswer):
                self._directories[key.group] = before.get(key.group, frozenset())
            elif isinstance(answer, Exception):
                raise answer
            else:
                self._directories[key.group] = frozenset(answer)
        return frozenset().union(*self._directories.values())

    async def _directories_of_specs(self, places: Places) -> tuple[frozenset[str], frozenset[str]]:
        """Where CDI specs are, and what is watched for those directories that are not there yet, as /etc/cdi may be.

        Who writes a spec may do so in place.
        """
        with contextlib.suppress(NoAnswer):
            self._spec_directories = await self._calls.call(
                Key("", "directories of CDI specs"), functools.partial(_there_and_nearest, places.specs)
            )
        return self._spec_directories

    async def is_news(self, places: Places) -> bool:
        """Whether what the watch told of last calls for a look; the specs that a look wrote itself do not."""
        return not (self._watch.was_only_in(self._for_specs) and await self._health.specs_are_as_read(places.specs))

    async def tell_held(
        self,
        tables: Sequence[DeviceTable],
        holdings: Sequence[Holding],
        doubtful: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        """Tell the tables which devices are held by other names, and which may be (doubtful), each with the reason."""
        resources = [table.resource for table in tables]
        held = await in_thread(held_by_other_names, resources, holdings, self.links.real)
        for table in tables:
            name = table.resource.name
            kept = self._kept(table.resource) if self.kept else {}
            _log(table, table.set_held({**(doubtful or {}).get(name, {}), **kept, **held.get(name, {})}))

    def _kept(self, resource: Resource) -> dict[str, str]:
        names = {device.id: resource.cdi_name(device) or "" for device in resource.devices}
        return {device_id: self.kept[name] for device_id, name in names.items() if name in self.kept}

    async def _scan(self, tables: Sequence[DeviceTable], places: Places, holdings: Sequence[Holding]) -> None:
        # A device stays with its resource, also while it is gone: the kubelet tells devices apart by id alone.
        taken = {device_id: table.resource.name for table in tables for device_id in table.discovered}
        found = await self._discoverer.discover(
            [table.declared for table in tables],
            functools.partial(writer.offered, places.cdi),
            taken,
            {table.declared.name: table.resource for table in tables},
        )
        self._tell_late()
        for table in tables:
            if table.declared.name in found:
                self._tell_left_out(table.declared.name, found[table.declared.name])
                _log(table, table.set_devices(found[table.declared.name].devices))
        # A spec is there before its device is given away.
        current = [table.resource for table in tables]
        unwritten = await (self._write(current, places) if self.writes else self._awaited(current, places))
        # Before the check, with which a device shows.
        await self.tell_held(tables, holdings)
        checked = await self._health.check(current, places.specs)
        for table in tables:
            reasons = checked[table.resource.name]
            for device in table.resource.devices:
                reasons[device.id] = reasons[device.id] or unwritten.get(table.resource.cdi_name(device))
            _log(table, table.update(reasons))

    async def _write(self, resources: Sequence[Resource], places: Places) -> dict[str | None, str]:
        """Write the specs. Gives the fully qualified names that are not written, each with the reason."""
        before, kept = self._written, self.kept
        due: list[Call[writer.Written | None]] = [
            (
                Key(resource.name, "its CDI spec"),
                functools.partial(writer.write, resource, self.links, places.cdi, before.get(resource.name), kept),
            )
            for resource in resources
        ]
        answers = await self._calls.run(due)
        self._written = {}
        unwritten: dict[str | None, str] = {}
        for resource in resources:
            answer = answers[Key(resource.name, "its CDI spec")]
            if not isinstance(answer, Exception):
                self._written[resource.name] = answer
                continue
            if isinstance(answer, NoAnswer):
                was = self._written[resource.name] = before.get(resource.name)
                why, names = f"writing its CDI spec {answer}", self._changed_since(was, resource)
            elif isinstance(answer, writer.NotWritten):
                why, names = str(answer), answer.names
            else:
                raise answer
            log.error("cannot write a CDI spec", resource=resource.name, error=why)
            unwritten.update(dict.fromkeys(names, why))
        return unwritten

    def _changed_since(self, before: writer.Written | None, declared: Resource) -> frozenset[str]:
        """The fully qualified names that a spec lacks, or has for another device, since it was written last."""
        names, now = _cdi_names([declared]), self.links.followed(declared)
        if before is None or now._replace(devices=()) != before.resource._replace(devices=()):
            return names
        written = {device.id: device for device in before.resource.devices}
        same = tuple(device for device in now.devices if written.get(device.id) == device)
        return names - _cdi_names([now._replace(devices=same)])

    async def _awaited(self, resources: Sequence[Resource], places: Places) -> dict[str | None, str]:
        """The names that wait for another instance to end, which writes the specs."""
        try:
            missing = await self._ask(writer.missing, resources, self.links, places.cdi)
        except OSError:
            missing = _cdi_names(resources)
        return dict.fromkeys(missing, _AWAITED)

    async def _ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that reads or writes our CDI specs. Raises NoAnswer, and what it raises."""
        return await self._calls.call(Key("", function.__name__), functools.partial(function, *arguments))

    async def redefined(
        self, resources: Sequence[Resource], former: Sequence[Resource], places: Places
    ) -> frozenset[str]:
        """The CDI names that mean other devices in our specs than these resources declare (writer.redefined).

        While nobody can say so, any of them may.
        """
        await self.links.look_at(node_paths(resources))
        try:
            return await self._ask(writer.redefined, resources, self.links, places.cdi, former)
        except OSError as error:
            log.warning("cannot read the CDI specs", directory=places.cdi, error=error)
            return _cdi_names(resources)

    async def has_orphans(self, resources: Sequence[Resource], places: Places) -> bool:
        """Whether our dynamic specs have devices that none of the resources has. Raises OSError.

        resources: with all their devices.
        """
        return bool(await self._ask(writer.orphans, resources, self.links, places.cdi))

    async def prune(self, resources: Sequence[Resource], held: Collection[str], places: Places) -> None:
        """Take out of our dynamic specs what no resource has and nobody holds (ids, as for writer.prune)."""
        async with self._one_at_a_time:
            try:
                gone = await self._ask(writer.prune, resources, self.links, held, places.cdi)
            except OSError as error:
                log.warning("CDI specs that may be orphans stay", directory=places.cdi, error=error)
                return
            if gone:
                log.info("removed orphans from the CDI specs", directory=places.cdi, devices=gone)

    def _tell_late(self) -> None:
        late = self._discoverer.late
        for name in late.keys() - self._late.keys():
            log.warning("discovery is late; the devices found before stay", resource=name, reason=late[name])
        for name in self._late.keys() - late.keys():
            log.info("discovery answers again", resource=name)
        self._late = late

    def _tell_left_out(self, resource: str, found: Discovered) -> None:
        now = [(device.id, reason) for device, reason in found.left_out]
        known = set(self._left_out.get(resource, ()))
        new = [each for each in now if each not in known]
        for device_id, reason in new[:_MOST_TOLD]:
            log.warning("left out a device", resource=resource, device=device_id, reason=reason)
        if len(new) > _MOST_TOLD:
            log.warning(
                "left out more devices; node-device-plugin discover lists each",
                resource=resource,
                count=len(new) - _MOST_TOLD,
            )
        self._left_out[resource] = now


def _cdi_names(resources: Iterable[Resource]) -> frozenset[str]:
    names = (resource.cdi_name(device) for resource in resources for device in resource.devices)
    return frozenset(name for name in names if name is not None)


def _there_and_nearest(specs: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    there = frozenset(filter(os.path.isdir, specs))
    return there, frozenset(nearest(directory) for directory in specs if directory not in there)


def _log(table: DeviceTable, news: Sequence[tuple[Device, str | None]]) -> None:
    """What is healthy in one line, what is not in one each; thousands of lines would say less, and cost seconds."""
    name = table.resource.name
    healthy = [device.id for device, reason in news if reason is None]
    unhealthy = [(device.id, reason) for device, reason in news if reason is not None]
    if len(healthy) == 1:
        log.info("a device is healthy", resource=name, device=healthy[0])
    elif healthy:
        log.info("devices are healthy", resource=name, count=len(healthy), devices=healthy[:_MOST_TOLD])
    for device_id, reason in unhealthy[:_MOST_TOLD]:
        log.warning("a device is unhealthy", resource=name, device=device_id, reason=reason)
    if len(unhealthy) > _MOST_TOLD:
        log.warning(
            "more devices are unhealthy; node-device-plugin status lists each reason",
            resource=name,
            count=len(unhealthy) - _MOST_TOLD,
        )
