"""The list of devices as v1beta1 has it: one entry for each share of a device, in an answer of limited size."""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

from ...declaration import Device, Resource
from ...declaration.response_size import LIMIT, listed_size
from ...devices.table import DeviceTable


class Listed(NamedTuple):
    """One entry: a share of a device. numa_node: None if it is unknown."""

    kubelet_id: str
    healthy: bool
    numa_node: Optional[int] = None


class DeviceList:
    """Lists a device table for the kubelet, and finds the device behind a kubelet id."""

    def __init__(self, table: DeviceTable) -> None:
        self.table = table
        #: How many times the list was to be sent again.
        self.repeats = 0
        self._resource: Optional[Resource] = None
        #: Kubelet id to the place of its device: made once for each list, because Allocate has no time for it.
        self._places: Dict[str, int] = {}

    def follow(self, table: DeviceTable) -> None:
        """List another table from now on."""
        former, self.table = self.table, table
        former.wake()

    def repeat(self) -> None:
        """Give the list again to whoever waits for another one."""
        self.repeats += 1
        self.table.wake()

    def listed(self) -> Tuple[Listed, ...]:
        """Every share of every device that is shown, in the order of the resource."""
        self._read()
        resource = self.table.resource
        return tuple(
            Listed(kubelet_id, reason is None, device.numa_node)
            for device, reason in self.table.shown()
            for kubelet_id in resource.kubelet_ids(device)
        )

    async def changed(self, last: Optional[Tuple[Listed, ...]], repeats: int = 0) -> Tuple[Listed, ...]:
        """The list, as soon as it is another one than ``last``, or was to be sent again more than ``repeats`` times."""
        while True:
            change = self.table.change
            listed = self.listed()
            if listed != last or repeats != self.repeats:
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
        self._places = {
            kubelet_id: place
            for place, device in enumerate(resource.devices)
            for kubelet_id in resource.kubelet_ids(device)
        }


def without_room(resource: Resource, staying: Sequence[Device], found: Sequence[Device]) -> Dict[str, str]:
    """The devices found for which a ListAndWatch answer has no room beside those that stay, each with the reason."""
    size = sum(listed_size(resource, device) for device in staying)
    left_out = {}
    for device in found:
        size += listed_size(resource, device)
        if size > LIMIT:
            left_out[device.id] = "the kubelet takes no list of more than %d bytes" % LIMIT
    return left_out
