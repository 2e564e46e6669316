"""The list of devices as v1beta1 has it: one entry for each share of a device, in an answer of limited size."""

from __future__ import annotations

import logging
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from ...declaration import Device, Resource
from ...declaration.response_size import LIMIT, listed_size
from ...devices.table import DeviceTable

log = logging.getLogger(__name__)

#: Devices without room that the log names at a time.
_MOST_TOLD = 10


class Listed(NamedTuple):
    """One entry: a share of a device. numa_node: None if it is unknown."""

    kubelet_id: str
    healthy: bool
    numa_node: Optional[int] = None


class DeviceList:
    """What the kubelet is told of a device table, and which device is behind an id."""

    def __init__(self, table: DeviceTable) -> None:
        self.table = table
        #: Discovered devices for which the answer has no room: id to the reason.
        self.left_out: Dict[str, str] = {}
        self._resource: Optional[Resource] = None
        self._devices: Dict[str, Device] = {}
        #: Kubelet id to the place of its device: made once for each list, because Allocate has no time for it.
        self._places: Dict[str, int] = {}

    def follow(self, table: DeviceTable) -> None:
        """List another table from now on."""
        former, self.table = self.table, table
        former.wake()

    def listed(self) -> Tuple[Listed, ...]:
        """Every share of every device that is shown and has room, in the order of the resource."""
        self._read()
        resource = self.table.resource
        return tuple(
            Listed(kubelet_id, reason is None, device.numa_node)
            for device, reason in self.table.shown()
            if device.id in self._devices
            for kubelet_id in resource.kubelet_ids(device)
        )

    async def changed(self, last: Optional[Tuple[Listed, ...]]) -> Tuple[Listed, ...]:
        """The list, as soon as it is another one than ``last``."""
        while True:
            change = self.table.change
            listed = self.listed()
            if listed != last:
                return listed
            await change.wait()

    def devices_of(self, kubelet_ids: Iterable[str]) -> List[Device]:
        """The devices behind kubelet ids (in any order), each once, in the order of the resource.

        Raises KeyError with the first id that is no device of this resource.
        """
        self._read()
        devices = self.table.resource.devices
        return [devices[place] for place in sorted({self._places[each] for each in kubelet_ids})]

    def _read(self) -> None:
        """Take in the table's devices if they are other ones than before."""
        resource = self.table.resource
        if resource is self._resource:
            return
        self._resource = resource
        self._devices, left_out = _with_room(resource, known=self._devices)
        new = [device_id for device_id, why in left_out.items() if self.left_out.get(device_id) != why]
        for device_id in new[:_MOST_TOLD]:
            log.warning("%s: device %s is left out: %s", resource.name, device_id, left_out[device_id])
        if len(new) > _MOST_TOLD:
            log.warning("%s: %d more devices are left out", resource.name, len(new) - _MOST_TOLD)
        self.left_out = left_out
        self._places = {
            kubelet_id: place
            for place, device in enumerate(resource.devices)
            if device.id in self._devices
            for kubelet_id in resource.kubelet_ids(device)
        }


def _with_room(resource: Resource, known: Dict[str, Device]) -> Tuple[Dict[str, Device], Dict[str, str]]:
    """The devices for which a ListAndWatch answer has room, by id, and why others are left out.

    known: what was listed before. It comes first, because the kubelet goes on calling a dropped device healthy.
    """
    size, room, left_out = 0, {}, {}
    for device in sorted(resource.devices, key=lambda device: device.id not in known):
        size += listed_size(resource, device)
        if size <= LIMIT:
            room[device.id] = device
        else:
            left_out[device.id] = "the kubelet takes no list of more than %d bytes" % LIMIT
    return room, left_out
