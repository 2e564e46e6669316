"""Keeps the tables on what is there: discovery, the CDI specs of what was discovered, and health."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
from typing import Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from ..cdi import writer
from ..cdi.writer import Held
from ..declaration import Device, Resource
from .discovery import Discovered, Known, discover, methods_of
from .discovery.directories import directories, nearest
from .events.watch import Watch
from .health import Health
from .holdings import Holding, held_by_other_names
from .table import DeviceTable

log = logging.getLogger(__name__)

#: As often as directories turn up, during one look, that nobody watched yet.
_MOST_LOOKS = 3
_AWAITED = "its CDI spec is written when the other instance on the node has ended"
#: Devices of a resource that are named in the log after one look.
_MOST_TOLD = 10


class Places(NamedTuple):
    """Directories of CDI specs.

    cdi: for the dynamic ones. specs: where the runtime reads CDI specs; empty to leave names unresolved.
    """

    cdi: str
    specs: Tuple[str, ...] = ()


class DeviceScanner:
    """Scans the devices, one scan at a time. watch: gets the directories to watch, and wakes the reconcile loop."""

    def __init__(self, watch: Watch) -> None:
        #: Whether this instance writes the CDI specs; while another one does, a device that they lack is not healthy.
        self.writes = True
        self._watch = watch
        self._health = Health(on_news=watch.wake)
        self._one_at_a_time = asyncio.Lock()
        self._left_out: Dict[str, List[str]] = {}
        self._known = Known()
        self._written: Dict[str, writer.Written] = {}
        #: Directories that are watched for their specs alone.
        self._for_specs: FrozenSet[str] = frozenset()

    async def close(self) -> None:
        """End what the checks have started."""
        await self._health.close()

    async def scan(
        self, tables: Sequence[Tuple[Resource, DeviceTable]], places: Places, holdings: Sequence[Holding] = ()
    ) -> None:
        """Look at everything and tell the tables.

        tables: all of a configuration, each with its resource as declared. holdings: what containers hold.
        """
        async with self._one_at_a_time:
            buses = any(method.needs_uevents for resource, _ in tables for method in methods_of(resource.discover))
            # Watching comes before looking, so that nothing is missed. What a look finds may lie elsewhere.
            for _ in range(_MOST_LOOKS):
                current = [table.resource for _, table in tables]
                watched = await asyncio.to_thread(directories, current)
                # Who writes a spec may do so in place; a directory for them may come later, as /etc/cdi does.
                specs = set(filter(os.path.isdir, places.specs))
                watched.update(nearest(directory) for directory in places.specs if directory not in specs)
                self._watch.look_at(watched, buses, specs)
                self._for_specs = frozenset(specs - watched)
                await self._scan(tables, places, holdings)
                found = [table.resource for _, table in tables]
                # Devices that are the same lie where they lay, or there is news already.
                if found == current or self._watch.covers(await asyncio.to_thread(directories, found)):
                    return

    async def is_news(self, places: Places) -> bool:
        """Whether what the watch told of last calls for a look; the specs that a look wrote itself do not."""
        if not self._watch.was_only_in(self._for_specs):
            return True
        return not await asyncio.to_thread(self._health.specs_are_as_read, places.specs)

    async def tell_held(
        self,
        tables: Sequence[DeviceTable],
        holdings: Sequence[Holding],
        doubtful: Optional[Mapping[str, Mapping[str, str]]] = None,
    ) -> None:
        """Tell the tables which devices are held by other names, and which may be (doubtful), each with the reason."""
        held = await asyncio.to_thread(held_by_other_names, [table.resource for table in tables], holdings)
        for table in tables:
            name = table.resource.name
            _log(table, table.set_held({**(doubtful or {}).get(name, {}), **held.get(name, {})}))

    async def _scan(
        self, tables: Sequence[Tuple[Resource, DeviceTable]], places: Places, holdings: Sequence[Holding]
    ) -> None:
        declared = [resource for resource, _ in tables]
        offered = functools.partial(writer.offered, places.cdi)
        # A device stays with its resource, also while it is gone: the kubelet tells devices apart by id alone.
        taken = {device_id: table.resource.name for _, table in tables for device_id in table.discovered}
        found = await asyncio.to_thread(discover, declared, "/", self._known, offered, taken)
        for resource, table in tables:
            if resource.name in found:
                self._tell_left_out(resource.name, found[resource.name])
                _log(table, table.set_devices(found[resource.name].devices))
        # A spec is there before its device is given away.
        current = [table.resource for _, table in tables]
        unwritten: Dict[str, str] = {}
        missing: FrozenSet[str] = frozenset()
        if self.writes:
            unwritten = await asyncio.to_thread(writer.write, current, places.cdi, self._written)
        else:
            missing = await asyncio.to_thread(writer.missing, current, places.cdi)
        # Before the check, with which a device shows.
        await self.tell_held([table for _, table in tables], holdings)
        for resource, table in tables:
            reasons = await self._health.check(table.resource, places.specs)
            why = unwritten.get(resource.name)
            if why is not None:
                log.error("%s: %s", resource.name, why)
                given = {device.id for device in table.resource.devices if table.resource.cdi_name(device)}
                reasons = {name: reason or (why if name in given else None) for name, reason in reasons.items()}
            awaited = {device.id for device in table.resource.devices if table.resource.cdi_name(device) in missing}
            reasons = {name: reason or (_AWAITED if name in awaited else None) for name, reason in reasons.items()}
            _log(table, table.update(reasons))

    async def has_orphans(self, resources: Sequence[Resource], places: Places) -> bool:
        """Whether our dynamic specs have devices that none of the resources has. Raises OSError.

        resources: with all their devices.
        """
        return bool(await asyncio.to_thread(writer.orphans, resources, places.cdi))

    async def prune(self, resources: Sequence[Resource], held: Sequence[Held], places: Places) -> None:
        """Take out of our dynamic specs what no resource has and nobody holds."""
        async with self._one_at_a_time:
            try:
                gone = await asyncio.to_thread(writer.prune, resources, held, places.cdi)
            except OSError as error:
                log.warning("CDI specs that may be orphans stay in %s: %s", places.cdi, error)
                return
            if gone:
                log.info("took out of %s what nobody has or holds: %s", places.cdi, " ".join(gone))

    def _tell_left_out(self, resource: str, found: Discovered) -> None:
        now = ["%s: %s" % (device.id, reason) for device, reason in found.left_out]
        known = set(self._left_out.get(resource, ()))
        new = [line for line in now if line not in known]
        for line in new[:_MOST_TOLD]:
            log.warning("%s: left out %s", resource, line)
        if len(new) > _MOST_TOLD:
            log.warning("%s: left out %d more; node-device-plugin discover names each", resource, len(new) - _MOST_TOLD)
        self._left_out[resource] = now


def _log(table: DeviceTable, news: Sequence[Tuple[Device, Optional[str]]]) -> None:
    """What is healthy in one line, what is not in one each; thousands of lines would say less, and cost seconds."""
    name = table.resource.name
    healthy = [device.id for device, reason in news if reason is None]
    unhealthy = [(device.id, reason) for device, reason in news if reason is not None]
    if len(healthy) == 1:
        log.info("%s: device %s is healthy", name, healthy[0])
    elif healthy:
        more = " and %d more" % (len(healthy) - _MOST_TOLD) if len(healthy) > _MOST_TOLD else ""
        log.info("%s: %d devices are healthy: %s%s", name, len(healthy), " ".join(healthy[:_MOST_TOLD]), more)
    for device_id, reason in unhealthy[:_MOST_TOLD]:
        log.warning("%s: device %s is unhealthy: %s", name, device_id, reason)
    if len(unhealthy) > _MOST_TOLD:
        log.warning(
            "%s: %d more devices are unhealthy; node-device-plugin status tells why", name, len(unhealthy) - _MOST_TOLD
        )
