"""Keeps the device tables up to date: runs discovery, writes the CDI specs of its devices, and checks health."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet

from ..cdi import writer
from ..cdi.links import Links, node_paths
from ..declaration import Configuration, Device, Resource
from ..support.bounded_calls import BoundedCalls, Call, Key, NoAnswer, in_thread
from ..telemetry.logs import Log
from .discovery import Discovered, Discoverer, methods_of
from .discovery.directories import directories, nearest
from .discovery.method import Incomplete
from .events.watch import Watch
from .given import Given, Judgement, Now, SpecNames
from .health import Health
from .holdings import Holding
from .identity import Identities, Identity, ambiguous_serials
from .our_specs import OurSpecs
from .reason import MOST_TOLD, warn
from .record import RecordFile
from .table import DeviceTable

log = Log(__name__)

#: Most passes of one scan: a pass repeats if it finds devices in unwatched directories.
_MOST_PASSES = 3
#: Seconds that a discovery method may take for one resource, or the write of its spec.
_LIMIT = 2.0
#: The same for a call that uses the CPU all the time, such as the write of a spec with 50,000 devices.
_BUSY = 30.0
#: Seconds until the log names a device that matched and is incomplete: one just plugged in has not all nodes yet.
_SETTLES = 5.0


class DeviceScanner:
    """Scans the devices, one scan at a time. watch: gets the directories to watch, and wakes the reconcile loop."""

    #: Where CDI specs and the record are. The owner sets it before the first scan and at each reload.
    configuration: Configuration

    def __init__(self, watch: Watch) -> None:
        #: Whether this instance writes the CDI specs; if another instance does, a device missing there is unhealthy.
        self.writes = True
        #: What ids mean, and which of them a container may get.
        self.given = Given()
        self._identities = Identities()
        #: The identities of host paths as last read, and the serials that tell no devices apart.
        self._now = Now({})
        #: The last judgement, and the names that keep or lose their edits in our specs as last written.
        self._judged, self._written_names = Judgement(), SpecNames()
        #: By resource, why devices are withheld: as judged, or because they wait for their spec.
        self._withheld: Mapping[str, Mapping[str, str]] = {}
        self._watch = watch
        #: If a path or device hangs, its resource keeps its known state and other resources go on.
        self._calls = BoundedCalls(_LIMIT, busy=_BUSY)
        #: The link targets of device nodes, and of held devices.
        self.links = Links(self._calls)
        self._record = RecordFile(self.given, self._calls)
        self.our_specs = OurSpecs(self.links, watch.wake)
        self._discoverer = Discoverer(self.links, on_news=watch.wake)
        self._health = Health(on_news=watch.wake)
        self._one_at_a_time = asyncio.Lock()
        #: By resource, each device left out and the reason, with the time until it is logged; then None.
        self._left_out: dict[str, dict[tuple[str, str], float | None]] = {}
        #: Resource to what hangs, as last logged.
        self._late: Mapping[str, str] = {}
        self._directories: dict[str, frozenset[str]] = {}
        self._spec_directories: tuple[frozenset[str], frozenset[str]] = frozenset(), frozenset()
        #: Whether a resource discovers devices in CDI specs.
        self._reads_specs = False
        #: Directories that are watched only for their specs.
        self._for_specs: frozenset[str] = frozenset()

    async def close(self) -> None:
        """End the commands that the checks have started."""
        await self._health.close()

    async def scan(self, tables: Sequence[DeviceTable]) -> None:
        """Scan all devices and update the tables. tables: all of a configuration."""
        async with self._one_at_a_time:
            discoveries = [table.declared.discover for table in tables]
            self._reads_specs = any(discovery.cdi for discovery in discoveries)
            buses = any(method.needs_uevents for discovery in discoveries for method in methods_of(discovery))
            # Watching comes before scanning, so that no change is missed. A scan may find devices elsewhere.
            for _pass in range(_MOST_PASSES):
                current = [table.resource for table in tables]
                watched = await self._directories_of(current)
                specs, missing = await self._directories_of_specs()
                await self._watch.look_at(watched | missing, buses, specs)
                self._for_specs = specs - watched - missing
                await self._scan_once(tables)
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

    async def _directories_of_specs(self) -> tuple[frozenset[str], frozenset[str]]:
        """The existing CDI spec directories, and the nearest existing parents of missing directories such as /etc/cdi.

        The scanner watches only the existing spec directories for file writes, because a program may write a spec in
        place.
        """
        with contextlib.suppress(NoAnswer):
            self._spec_directories = await self._calls.ask(_there_and_nearest, self.configuration.checked_spec_dirs)
        return self._spec_directories

    async def is_news(self) -> bool:
        """Whether the last change that the watch reported needs a scan; a scan's own writes of specs do not.

        If a resource discovers devices in specs, each change needs a scan: it reads the specs before the health checks.
        """
        if self._reads_specs or not self._watch.was_only_in(self._for_specs):
            return True
        return not await self._health.specs_are_as_read(self.configuration.checked_spec_dirs)

    async def answer(self, tables: Sequence[DeviceTable], question: int, holdings: Sequence[Holding]) -> bool:
        """Judge the devices with these holders (see Given). Returns whether a spec must change before an offer."""
        async with self._one_at_a_time:
            self.given.answer(question, holdings)
            await self._judge(tables)
            await self._save_record()
            return self.writes and self._judged.names != self._written_names

    async def judge_again(self, tables: Sequence[DeviceTable]) -> None:
        """Judge the devices with the known holders, if a container got a device meanwhile."""
        while not self.given.is_judged:
            async with self._one_at_a_time:
                await self._judge(tables)

    async def _judge(self, tables: Sequence[DeviceTable]) -> None:
        """Judge every device, and set in the tables which devices a container cannot get now."""
        resources = [table.present for table in tables]
        # By resource, so that a path that hangs delays the judgement of its own resource alone.
        specs = self._discoverer.specs
        at = await self._read_identities(self.given.paths(resources, specs))
        self._now = Now(at, await self._ambiguous(at), self.given.record)
        known = {(table.resource.name, device.id) for table in tables for device in table.resource.devices}
        self._judged = await in_thread(self.given.judge, resources, known, self._now, specs)
        # A withheld device whose name has another meaning in our spec waits until the spec is written.
        unwritten = frozenset().union(*self._written_names) if self.writes else frozenset()
        waiting = {
            resource.name: _with_names(resource, self._withheld.get(resource.name, {}), unwritten)
            for resource in (table.resource for table in tables)
        }
        self._withhold(tables, {name: {**waiting[name], **each} for name, each in self._judged.reasons.items()})

    def _withhold(self, tables: Sequence[DeviceTable], reasons: Mapping[str, Mapping[str, str]]) -> None:
        """Withhold these devices and no others. reasons: by resource and device id."""
        self._withheld = reasons
        for table in tables:
            _log_changes(table, table.set_held(reasons.get(table.resource.name, {})))

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
        now = Now({**self._now.at, **at}, self._now.ambiguous, self.given.record)
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
            return await self._calls.ask(ambiguous_serials, at.values())
        except NoAnswer:
            return self._now.ambiguous

    async def load_record(self, again: bool = False) -> None:
        """Load the record of this boot. again: whether another instance has kept the record since."""
        await self._record.load(self.configuration, self._identities, again)

    async def _save_record(self) -> None:
        if self.writes:
            await self._record.save(self.configuration)

    async def _scan_once(self, tables: Sequence[DeviceTable]) -> None:
        """Bring a device from the node to its frontend. Each step needs the steps before.

        A device is judged before its spec changes, and before its check makes it visible. Its spec exists before a
        container gets it, and tells the check what a container would get. A device that waits for its spec is released
        last: if the spec could not be written, the check has made the device unhealthy.
        """
        await self._discover(tables)
        resources, directory = [table.resource for table in tables], self.configuration.dynamic_cdi_dir
        await self._judge(tables)
        if self.writes:
            unwritten = await self.our_specs.write(resources, directory, self._judged.names)
        else:
            unwritten = await self.our_specs.awaited(resources, directory)
        await self._save_record()
        await self._check(tables, unwritten)
        self._written_names = self._judged.names
        self._withhold(tables, self._judged.reasons)

    async def _discover(self, tables: Sequence[DeviceTable]) -> None:
        found = await self._discoverer.discover(
            [table.declared for table in tables],
            functools.partial(writer.offered, self.configuration.dynamic_cdi_dir),
            # A device stays with its resource even while it is gone: the kubelet tells devices apart by id alone.
            {table.declared.name: table.resource for table in tables},
            self.configuration.checked_spec_dirs,
        )
        self._log_late()
        for table in tables:
            table.late = self._late.get(table.declared.name)
            if table.declared.name in found:
                self._log_left_out(table.declared.name, found[table.declared.name])
                _log_changes(table, table.set_devices(*found[table.declared.name]))

    async def _check(self, tables: Sequence[DeviceTable], unwritten: Mapping[str | None, str]) -> None:
        """Check the health of all devices. unwritten: the names that our specs do not have as wanted."""
        specs = self.configuration.checked_spec_dirs
        checked = await self._health.check([table.resource for table in tables], specs, unwritten)
        for table in tables:
            reasons, judged = checked[table.resource.name], self._judged.reasons[table.resource.name]
            # If the spec closes a device because another one has its path, the verdict says so.
            closed = [
                device.id
                for device in table.resource.devices
                if device.id in judged and table.resource.cdi_name(device) in self._judged.names.blocked
            ]
            _log_changes(table, table.update({**reasons, **dict.fromkeys(closed)}))

    async def prune(self, resources: Sequence[Resource], held: Collection[str]) -> None:
        """See OurSpecs. resources: with all their devices."""
        async with self._one_at_a_time:
            if await self.our_specs.prune(resources, held, self.configuration.dynamic_cdi_dir):
                await self._save_record()

    def _log_late(self) -> None:
        late = self._discoverer.late
        for name in late.keys() - self._late.keys():
            log.warning("discovery has not finished; devices found earlier stay", resource=name, reason=late[name])
        for name in self._late.keys() - late.keys():
            log.info("discovery has finished", resource=name)
        self._late = late

    def _log_left_out(self, resource: str, found: Discovered) -> None:
        known, now = self._left_out.get(resource, {}), asyncio.get_running_loop().time()
        # The time when a reason was first seen, until the log names it.
        due = {(device.id, reason): known.get((device.id, reason), now) for device, reason in found.left_out}
        new = [
            each
            for each, since in due.items()
            if since is not None and (not isinstance(each[1], Incomplete) or now - since >= _SETTLES)
        ]
        more = "left out more devices; node-device-plugin discover lists each"
        warn(log, resource, "left out a device", more, new)
        self._left_out[resource] = {**due, **dict.fromkeys(new)}


def _with_names(resource: Resource, reasons: Mapping[str, str], names: Collection[str]) -> dict[str, str]:
    """Of these reasons by device id, those for devices with one of these CDI names."""
    devices = (device for device in resource.devices if device.id in reasons)
    return {device.id: reasons[device.id] for device in devices if resource.cdi_name(device) in names}


def _there_and_nearest(specs: Sequence[str]) -> tuple[frozenset[str], frozenset[str]]:
    there = frozenset(filter(os.path.isdir, specs))
    return there, frozenset(nearest(directory) for directory in specs if directory not in there)


def _log_changes(table: DeviceTable, changes: Sequence[tuple[Device, str | None]]) -> None:
    """Log healthy devices in one line, and some unhealthy devices in a line each."""
    name = table.resource.name
    healthy = [device.id for device, reason in changes if reason is None]
    if len(healthy) == 1:
        log.info("a device is healthy", resource=name, device=healthy[0])
    elif healthy:
        log.info("devices are healthy", resource=name, count=len(healthy), devices=healthy[:MOST_TOLD])
    unhealthy = [(device.id, reason) for device, reason in changes if reason is not None]
    more = "more devices are unhealthy; node-device-plugin status lists each reason"
    warn(log, name, "a device is unhealthy", more, unhealthy)
