"""Keeps the tables on what is there: discovery, the CDI specs of what was discovered, and health."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from . import cdi_files, node_state
from .cdi_files import Held
from .declaration import Device, Resource
from .device_table import DeviceTable
from .discovery import Discovered, discover
from .discovery.directories import directories
from .health import Health
from .kubelet_checkpoint import CheckpointError
from .watch import Watch

log = logging.getLogger(__name__)

#: As often as directories turn up, during one look, that nobody watched yet.
_MOST_LOOKS = 3


class Places(NamedTuple):
    """Directories: for dynamic CDI specs, and the kubelet's, which know who holds what.

    specs: where the runtime reads CDI specs; empty to leave names unresolved.
    """

    cdi: str
    kubelet_root: str
    device_plugins: str
    specs: Tuple[str, ...] = ()


class Inventory:
    """watch: is told where to look, and tells when. Looks one at a time."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._health = Health(on_news=watch.wake)
        self._one_at_a_time = asyncio.Lock()
        self._left_out: Dict[str, List[str]] = {}

    async def close(self) -> None:
        """End what the checks have started."""
        await self._health.close()

    async def look(self, tables: Sequence[Tuple[Resource, DeviceTable]], places: Places) -> None:
        """Look at everything and tell the tables.

        tables: all of a configuration, each with its resource as declared.
        """
        async with self._one_at_a_time:
            buses = any(resource.discover.usb or resource.discover.pci for resource, _ in tables)
            # Watching comes before looking, so that nothing is missed. What a look finds may lie elsewhere.
            for _ in range(_MOST_LOOKS):
                current = [table.resource for _, table in tables]
                watched = await asyncio.to_thread(directories, current)
                self._watch.look_at(watched.union(filter(os.path.isdir, places.specs)), buses)
                await self._look(tables, places)
                current = [table.resource for _, table in tables]
                if self._watch.covers(await asyncio.to_thread(directories, current)):
                    return

    async def _look(self, tables: Sequence[Tuple[Resource, DeviceTable]], places: Places) -> None:
        found = await asyncio.to_thread(discover, [resource for resource, _ in tables])
        for resource, table in tables:
            if resource.name in found:
                self._tell_left_out(resource.name, found[resource.name])
                _log(table, table.set_devices(found[resource.name].devices))
        # A spec is there before its device is given away.
        unwritten = await asyncio.to_thread(cdi_files.write, [table.resource for _, table in tables], places.cdi)
        for resource, table in tables:
            reasons = await self._health.check(table.resource, places.specs)
            why = unwritten.get(resource.name)
            if why is not None:
                log.error("%s: %s", resource.name, why)
                given = {device.id for device in table.resource.devices if table.resource.cdi_name(device)}
                reasons = {name: reason or (why if name in given else None) for name, reason in reasons.items()}
            _log(table, table.update(reasons))

    async def prune(self, tables: Sequence[DeviceTable], places: Places) -> None:
        """Take out of our dynamic specs what nobody has and nobody holds; where the holders are unknown, nothing."""
        async with self._one_at_a_time:
            try:
                state = await node_state.holders(places.kubelet_root, places.device_plugins)
                held = [Held(each["resource"], each["device"]) for each in state["held"]]
                current = [table.resource for table in tables]
                gone = await asyncio.to_thread(cdi_files.prune, current, held, places.cdi)
            except (CheckpointError, OSError) as error:
                log.warning("CDI specs that may be orphans stay in %s: %s", places.cdi, error)
                return
            if gone:
                log.info("took out of %s what nobody has or holds: %s", places.cdi, " ".join(gone))

    def _tell_left_out(self, resource: str, found: Discovered) -> None:
        now = ["%s: %s" % (device.id, reason) for device, reason in found.left_out]
        for line in now:
            if line not in self._left_out.get(resource, ()):
                log.warning("%s: left out %s", resource, line)
        self._left_out[resource] = now


def _log(table: DeviceTable, news: Sequence[Tuple[Device, Optional[str]]]) -> None:
    for device, reason in news:
        if reason is None:
            log.info("%s: device %s is healthy", table.resource.name, device.id)
        else:
            log.warning("%s: device %s is unhealthy: %s", table.resource.name, device.id, reason)
