"""Keeps the device tables up to date: runs discovery, writes the CDI specs of its devices, and checks health."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import (
    Any,
    Callable,
    NamedTuple,
    TypeVar,
)

from ..cdi import writer
from ..cdi.kinds import kinds_of
from ..cdi.links import Links, node_paths
from ..cdi.reader import SpecReader
from ..cdi.resolution import NO_SPECS
from ..declaration import Device, Resource
from ..support.bounded_calls import BoundedCalls, Call, Key, NoAnswer, in_thread
from ..telemetry.logs import Log, Tries
from . import record
from .discovery import Discovered, Discoverer, methods_of
from .discovery.directories import directories, nearest
from .discovery.found import Incomplete
from .events.watch import Watch
from .failed_writes import FailedWrites
from .given import Given, Now, Offer, OfferKey, SpecNames, node_paths_of, offers_of
from .health import Health
from .holdings import Holding
from .identity import Identities, Identity, ambiguous_serials
from .table import DeviceTable

log = Log(__name__)

T = TypeVar("T")

#: Most passes of one scan: a pass repeats if it finds devices in unwatched directories.
_MOST_LOOKS = 3
#: Seconds that a discovery method may take for one resource, or the write of its spec.
_LIMIT = 2.0
#: The same for a call that uses the CPU all the time, such as the write of a spec with 50,000 devices.
_BUSY = 30.0
_AWAITED = "the CDI spec is written after the other plugin instance on this node ends"
#: Most devices of a resource that the log names after one scan.
_MOST_TOLD = 10
#: Seconds until the log names a device that matched and is incomplete: one just plugged in has not all nodes yet.
_SETTLES = 5.0


class Places(NamedTuple):
    """Directories of CDI specs, and the file of the record.

    cdi: for the plugin's dynamic specs. specs: where the runtime reads specs; if empty, CDI names are not checked.
    record: see ``devices.record``; if empty, the record is not kept.
    """

    cdi: str
    specs: tuple[str, ...] = ()
    record: str = ""


class DeviceScanner:
    """Scans the devices, one scan at a time. watch: gets the directories to watch, and wakes the reconcile loop."""

    def __init__(self, watch: Watch) -> None:
        #: Whether this instance writes the CDI specs; if another instance does, a device missing there is unhealthy.
        self.writes = True
        #: What ids mean, and which of them a container may get.
        self.given = Given()
        self._identities = Identities()
        #: The identities of host paths as last read, and the serials that tell no devices apart.
        self._now = Now({})
        #: The names that keep or lose their edits in our specs: as judged, and as last written.
        self._names = self._written_names = SpecNames()
        #: By resource, why devices are withheld: as judged, and with those that wait for their spec.
        self._judged: Mapping[str, Mapping[str, str]] = {}
        self._withheld: Mapping[str, Mapping[str, str]] = {}
        #: The file whose record is loaded, what was last written to it, and why it cannot be written, as last logged.
        self._record = self._not_saved = ""
        self._saved: tuple[record.Recorded, bool] | None = None
        self._watch = watch
        #: If a path or device hangs, its resource keeps its known state and other resources go on.
        self._calls = BoundedCalls(_LIMIT, busy=_BUSY)
        #: The link targets of device nodes, and of held devices.
        self.links = Links(self._calls)
        self._discoverer = Discoverer(self.links, on_news=watch.wake)
        self._health = Health(on_news=watch.wake)
        self._one_at_a_time = asyncio.Lock()
        #: By resource, each device left out and the reason, with the time until it is logged; then None.
        self._left_out: dict[str, dict[tuple[str, str], float | None]] = {}
        #: Resource to what hangs, as last logged.
        self._late: Mapping[str, str] = {}
        self._directories: dict[str, frozenset[str]] = {}
        self._spec_directories: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        self._written: dict[str, writer.Written | None] = {}
        #: The specs that could not be written. Failures to remove devices from specs are logged once a change, too.
        self._failed = FailedWrites(log, watch.wake)
        self._omitting, self._pruning = Tries(log), Tries(log)
        #: Other programs' CDI specs, as last read.
        self.specs = NO_SPECS
        self._reader = SpecReader(())
        #: The kinds that the former and the present devices need: after a reload, both are compared.
        self._spec_kinds: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        #: Whether a resource discovers devices in CDI specs.
        self._reads_specs = False
        #: Directories that are watched only for their specs.
        self._for_specs: frozenset[str] = frozenset()

    async def close(self) -> None:
        """End the commands that the checks have started."""
        await self._health.close()

    async def scan(self, tables: Sequence[DeviceTable], places: Places) -> None:
        """Scan all devices and update the tables. tables: all of a configuration."""
        async with self._one_at_a_time:
            discoveries = [table.declared.discover for table in tables]
            self._reads_specs = any(discovery.cdi for discovery in discoveries)
            buses = any(method.needs_uevents for discovery in discoveries for method in methods_of(discovery))
            # Watching comes before scanning, so that no change is missed. A scan may find devices elsewhere.
            for _look in range(_MOST_LOOKS):
                current = [table.resource for table in tables]
                watched = await self._directories_of(current)
                specs, missing = await self._directories_of_specs(places)
                await self._watch.look_at(watched | missing, buses, specs)
                self._for_specs = specs - watched - missing
                await self._scan(tables, places)
                found = [table.resource for table in tables]
                # Unchanged devices are in watched directories; if they moved, an event is pending.
                if found == current or self._watch.covers(await self._directories_of(found)):
                    return

    async def _directories_of(self, resources: Sequence[Resource]) -> frozenset[str]:
        """The directories to watch for these resources; if a resource hangs, its former directories."""
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
        """The existing CDI spec directories, and the nearest existing parents of missing directories such as /etc/cdi.

        The scanner watches only the existing spec directories for file writes, because a program may write a spec in
        place.
        """
        with contextlib.suppress(NoAnswer):
            self._spec_directories = await self._calls.call(
                Key("", "directories of CDI specs"), functools.partial(_there_and_nearest, places.specs)
            )
        return self._spec_directories

    async def is_news(self, places: Places) -> bool:
        """Whether the last change that the watch reported needs a scan; a scan's own writes of specs do not.

        If a resource discovers devices in specs, each change needs a scan: it reads the specs before the health checks.
        """
        if self._reads_specs or not self._watch.was_only_in(self._for_specs):
            return True
        return not await self._health.specs_are_as_read(places.specs)

    async def answer(
        self, tables: Sequence[DeviceTable], places: Places, question: int, holdings: Sequence[Holding]
    ) -> bool:
        """Judge the devices with these holders (see Given). Returns whether a spec must change before an offer."""
        async with self._one_at_a_time:
            paths: dict[str, set[str]] = {}
            for each in holdings:
                paths.setdefault(each.resource, set()).update(each.given)
            self.given.answer(question, holdings, await self._read_identities(paths))
            await self._judge(tables)
            await self._save_record(places)
            return self.writes and self._names != self._written_names

    async def judge_again(self, tables: Sequence[DeviceTable]) -> None:
        """Judge the devices with the known holders, if a container got a device meanwhile."""
        while not self.given.is_judged:
            async with self._one_at_a_time:
                await self._judge(tables)

    async def _judge(self, tables: Sequence[DeviceTable]) -> None:
        """Judge every device, and set in the tables which devices a container cannot get now."""
        resources = [table.present for table in tables]
        # By resource, so that a path that hangs delays the judgement of its own resource alone.
        paths = self.given.paths()
        for resource in resources:
            those = (path for device in resource.devices for path in node_paths_of(device, self.specs))
            paths.setdefault(resource.name, set()).update(those)
        at = await self._read_identities(paths)
        self._now = Now(at, await self._ambiguous(at), self.given.nodes())
        offers, _present = await in_thread(offers_of, resources, at, self.specs)
        known = {(table.resource.name, device.id) for table in tables for device in table.resource.devices}
        verdicts = await in_thread(self.given.judge, resources, offers, known, self._now)
        self._names = self.given.names(verdicts, offers, self._now)
        judged: dict[str, dict[str, str]] = {resource.name: {} for resource in resources}
        for (name, device_id), verdict in verdicts.items():
            judged[name][device_id] = verdict.reason
        before, self._judged, self._withheld = self._withheld, judged, {}
        # A device whose name has another meaning in our spec waits until the spec is written.
        unwritten = frozenset().union(*self._written_names) if self.writes else frozenset()
        for table in tables:
            name = table.resource.name
            waiting = {
                device.id: before[name][device.id]
                for device in (table.resource.devices if unwritten and name in before else ())
                if device.id in before[name] and table.resource.cdi_name(device) in unwritten
            }
            self._withheld = {**self._withheld, name: {**waiting, **judged[name]}}
            _log(table, table.set_held(self._withheld[name]))

    def _release(self, tables: Sequence[DeviceTable]) -> None:
        """Let the devices go that have waited for their spec."""
        self._written_names, self._withheld = self._names, self._judged
        for table in tables:
            _log(table, table.set_held(self._judged.get(table.resource.name, {})))

    async def why_changed(
        self, resource: str, device_ids: Sequence[str], given: Sequence[Collection[str]]
    ) -> str | None:
        """Why a container that was given these devices by host paths would get another device now; None if not.

        given: the host paths of each container that has these devices, by the kubelet's answers.
        """
        keys = [(resource, device_id) for device_id in device_ids]
        offers = [self.given.record[key] for key in keys if key in self.given.record]
        given = given or [{node.path for offer in offers for node in offer.nodes}]
        paths = {path for each in given for path in each}
        at = await self._read_identities({resource: paths})
        now = Now({**self._now.at, **at}, self._now.ambiguous, self.given.nodes())
        meant = frozenset().union(*(now.tokens(offer) for offer in offers))
        others = [[path for path in each if path in at and now.token(at[path]) not in meant] for each in given]
        if not offers or not all(others):
            return None
        advice = "delete the pod, so that a new pod gets the device"
        return f"the container would get {', '.join(sorted(others[0]))} again, which is another device now: {advice}"

    async def _read_identities(self, paths: Mapping[str, AbstractSet[str]]) -> dict[str, Identity]:
        """The identities of host paths by resource; those of a resource that hangs are as last read."""
        due: list[Call[dict[str, Identity]]] = [
            (Key(name, "what its device nodes are"), functools.partial(self._identities.read, each))
            for name, each in paths.items()
        ]
        found: dict[str, Identity] = {}
        for key, answer in (await self._calls.run(due)).items():
            if isinstance(answer, Exception):
                for path in paths[key.group] & self._now.at.keys():
                    found.setdefault(path, self._now.at[path])
            else:
                found.update(answer)
        return found

    async def _ambiguous(self, at: Mapping[str, Identity]) -> Collection[str]:
        try:
            key = Key("", "serial numbers of USB devices")
            return await self._calls.call(key, functools.partial(ambiguous_serials, at.values()))
        except NoAnswer:
            return self._now.ambiguous

    async def load_record(self, resources: Sequence[Resource], places: Places, again: bool = False) -> None:
        """Load the record of this boot. Without one at the start, our specs tell what ids meant before.

        again: whether another instance has kept the record since.
        """
        if (places.record == self._record and not again) or not places.record:
            return
        former, self._record, self._saved = self._record, places.record, None
        recorded: record.Recorded | None = None
        try:
            recorded = await self._ask(_recorded, places)
            if former not in ("", places.record):
                await self._ask(os.unlink, former)
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning(
                "cannot read what containers were given: make the file readable, then restart the plugin",
                path=places.record,
                error=error,
            )
        if recorded is not None:
            # Another instance does not know what this instance alone has offered.
            self.given.record = {**self.given.record, **recorded.offers} if again else recorded.offers
            self.given.missed, self.given.is_known = recorded.missed, True
        elif not former:
            self.given.is_known = False
            try:
                of_kinds = {each.cdi_kind: each for each in resources}
                self.given.record = await self._ask(_by_our_specs, places, of_kinds, self._identities)
            except OSError as error:
                log.warning(
                    "cannot read what containers were given: make the directory readable, then restart the plugin",
                    path=places.cdi,
                    error=error,
                )

    async def _save_record(self, places: Places) -> None:
        if not (places.record and self.writes):
            return
        try:
            now = record.Recorded(dict(self.given.record), dict(self.given.missed))
            recorded = now, await self._ask(writer.exists, places.cdi)
            if recorded != self._saved:
                await self._ask(record.save, places.record, *recorded)
                self._saved = recorded
            self._not_saved = ""
        except OSError as error:
            if str(error) != self._not_saved:
                self._not_saved = str(error)
                log.warning(
                    "cannot record what containers are given: make the directory writable, and free space on its disk",
                    path=places.record,
                    error=error,
                )

    async def _read_specs(self, resources: Sequence[Resource], places: Places) -> None:
        """Read other programs' specs if a device needs them. Specs that hang count as last read."""
        kinds = kinds_of(name for resource in resources for device in resource.devices for name in device.cdi_devices)
        if kinds:
            if kinds != self._spec_kinds[1]:
                self._spec_kinds = self._spec_kinds[1], kinds
            if self._reader.directories != tuple(dict.fromkeys(places.specs)):
                self._reader = SpecReader(places.specs)
            key = Key("", "CDI specs that devices need")
            read = functools.partial(self._reader.read, frozenset().union(*self._spec_kinds))
            answer = (await self._calls.run([(key, read)]))[key]
            self.specs = self.specs if isinstance(answer, Exception) else answer

    async def _scan(self, tables: Sequence[DeviceTable], places: Places) -> None:
        # A device stays with its resource even while it is gone, because the kubelet tells devices apart by id alone.
        taken = {device_id: table.resource.name for table in tables for device_id in table.discovered}
        found = await self._discoverer.discover(
            [table.declared for table in tables],
            functools.partial(writer.offered, places.cdi),
            taken,
            {table.declared.name: table.resource for table in tables},
            places.specs,
        )
        self._tell_late()
        for table in tables:
            table.late = self._late.get(table.declared.name)
            if table.declared.name in found:
                self._tell_left_out(table.declared.name, found[table.declared.name])
                _log(table, table.set_devices(*found[table.declared.name]))
        current = [table.resource for table in tables]
        await self._read_specs(current, places)
        # A device is judged before its spec changes, and before the check makes it visible.
        await self._judge(tables)
        # The spec of a device must exist before the device is given to a container.
        unwritten = await (self._write(current, places) if self.writes else self._awaited(current, places))
        await self._save_record(places)
        checked = await self._health.check(current, places.specs, unwritten)
        for table in tables:
            reasons, judged = checked[table.resource.name], self._judged[table.resource.name]
            for device in table.resource.devices:
                name = table.resource.cdi_name(device)
                # If the spec closes a device because another one has its path, the verdict says so.
                is_closed = name in self._names.blocked and device.id in judged
                reasons[device.id] = None if is_closed else reasons[device.id]
            _log(table, table.update(reasons))
        # A device whose spec could not be written is unhealthy by now.
        self._release(tables)

    async def _write(self, resources: Sequence[Resource], places: Places) -> dict[str | None, str]:
        """Write the specs. Returns the fully qualified names that are not written, each with the reason."""
        before, spec_names = self._written, self._names
        wanted = {resource.name: (resource, places.cdi, *spec_names) for resource in resources}
        self._failed.keep_only(wanted)
        waiting = {name: self._failed.waiting(name, each) for name, each in wanted.items()}
        due: list[Call[writer.Written | None]] = [
            (
                Key(resource.name, "its CDI spec"),
                functools.partial(
                    writer.write, resource, self.links, places.cdi, before.get(resource.name), *spec_names
                ),
            )
            for resource in resources
            if waiting[resource.name] is None
        ]
        answers = await self._calls.run(due)
        self._written = {}
        unwritten: dict[str | None, str] = {}
        for resource in resources:
            failure = waiting[resource.name]
            answer = failure or answers[Key(resource.name, "its CDI spec")]
            if not isinstance(answer, Exception):
                self._written[resource.name] = answer
                self._failed.went_well(resource.name)
                continue
            if isinstance(answer, NoAnswer):
                was = self._written[resource.name] = before.get(resource.name)
                why, names = f"writing the CDI spec {answer}", self._changed_since(was, resource)
            elif isinstance(answer, writer.NotWritten):
                why, names = str(answer), answer.names
            else:
                raise answer
            if failure is None:
                self._failed.failed(resource.name, wanted[resource.name], answer, resource=resource.name, error=why)
            unwritten.update(dict.fromkeys(names, why))
        await self._omit_removed(resources, places)
        return unwritten

    async def _omit_removed(self, resources: Sequence[Resource], places: Places) -> None:
        """Omit removed devices from the specs if other devices have their paths now."""
        names = self._names.blocked and self._names.blocked - _cdi_names(resources)
        try:
            omitted = await self._ask(writer.omit, names, places.cdi) if names else []
        except OSError as error:
            self._omitting.failed(
                logging.ERROR, "cannot remove a device from the CDI specs", directory=places.cdi, error=error
            )
            return
        self._omitting.went_well()
        if omitted:
            log.warning("removed devices from the CDI specs, because others have their paths now", devices=omitted)

    def _changed_since(self, before: writer.Written | None, declared: Resource) -> frozenset[str]:
        """The fully qualified names that are new or changed since the spec was written last."""
        names, now = _cdi_names([declared]), self.links.followed(declared)
        if before is None or now._replace(devices=()) != before.resource._replace(devices=()):
            return names
        # In the spec, the kept names do not have the edits of the resource.
        written = {device.id: device for device in before.resource.devices if now.cdi_name(device) not in before.kept}
        same = tuple(device for device in now.devices if written.get(device.id) == device)
        return names - _cdi_names([now._replace(devices=same)])

    async def _awaited(self, resources: Sequence[Resource], places: Places) -> dict[str | None, str]:
        """The names missing from the specs until another instance, which writes the specs, has ended."""
        try:
            missing = await self._ask(writer.missing, resources, self.links, places.cdi)
        except OSError:
            missing = _cdi_names(resources)
        return dict.fromkeys(missing, _AWAITED)

    async def _ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function that reads or writes our CDI specs. Raises NoAnswer, or the function's own error."""
        return await self._calls.call(Key("", function.__name__), functools.partial(function, *arguments))

    async def has_orphans(self, resources: Sequence[Resource], places: Places) -> bool:
        """Whether our dynamic specs have devices that none of the resources has.

        resources: with all their devices. Raises OSError if the specs cannot be read.
        """
        return bool(await self._ask(writer.orphans, resources, self.links, places.cdi))

    async def prune(self, resources: Sequence[Resource], held: Collection[str], places: Places) -> None:
        """Remove devices that no resource has and no pod holds from our dynamic specs. held: see writer.prune."""
        async with self._one_at_a_time:
            try:
                gone = await self._ask(writer.prune, resources, self.links, held, places.cdi)
            except OSError as error:
                self._pruning.failed(
                    logging.WARNING,
                    "cannot check the CDI specs for orphans; all specs stay",
                    directory=places.cdi,
                    error=error,
                )
                return
            self._pruning.went_well()
            if gone:
                log.info("removed orphaned devices from the CDI specs", directory=places.cdi, devices=gone)
                await self._save_record(places)

    def _tell_late(self) -> None:
        late = self._discoverer.late
        for name in late.keys() - self._late.keys():
            log.warning("discovery has not finished; devices found earlier stay", resource=name, reason=late[name])
        for name in self._late.keys() - late.keys():
            log.info("discovery has finished", resource=name)
        self._late = late

    def _tell_left_out(self, resource: str, found: Discovered) -> None:
        known, now = self._left_out.get(resource, {}), asyncio.get_running_loop().time()
        # The time when a reason was first seen, until the log names it.
        due = {(device.id, reason): known.get((device.id, reason), now) for device, reason in found.left_out}
        new = [
            each
            for each, since in due.items()
            if since is not None and (not isinstance(each[1], Incomplete) or now - since >= _SETTLES)
        ]
        for device_id, reason in new[:_MOST_TOLD]:
            log.warning("left out a device", resource=resource, device=device_id, reason=reason)
        if len(new) > _MOST_TOLD:
            log.warning(
                "left out more devices; node-device-plugin discover lists each",
                resource=resource,
                count=len(new) - _MOST_TOLD,
            )
        self._left_out[resource] = {**due, **dict.fromkeys(new)}


def _cdi_names(resources: Iterable[Resource]) -> frozenset[str]:
    names = (resource.cdi_name(device) for resource in resources for device in resource.devices)
    return frozenset(name for name in names if name is not None)


def _recorded(places: Places) -> record.Recorded | None:
    return record.load(places.record, writer.exists(places.cdi))


def _by_our_specs(places: Places, resources: Mapping[str, Resource], identities: Identities) -> dict[OfferKey, Offer]:
    """What the names in our specs mean. resources: by CDI kind."""
    offers = {}
    for name, given in ((name, given) for spec in writer.given([places.cdi]) for name, given in spec.items()):
        kind, _equals, device_id = name.partition("=")
        nodes = tuple(identities.read(sorted(given.nodes)).values())
        if nodes or not given.nodes:
            of = resources.get(kind)
            key = of.name if of else kind, device_id
            offers[key] = Offer("", nodes, tuple(sorted(given.mounts)), name, of is not None and of.replicas > 1)
    return offers


def _there_and_nearest(specs: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    there = frozenset(filter(os.path.isdir, specs))
    return there, frozenset(nearest(directory) for directory in specs if directory not in there)


def _log(table: DeviceTable, news: Sequence[tuple[Device, str | None]]) -> None:
    """Log healthy devices in one line, and some unhealthy devices in a line each: thousands of lines take seconds."""
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
