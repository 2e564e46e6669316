"""The list of devices as v1beta1 has it: one entry for each share of a device, in an answer of limited size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...declaration import Device, Resource
from ...declaration.response_size import LIMIT, listed_size
from ...devices.table import DeviceTable


class Listed(NamedTuple):
    """One entry: a share of a device. numa_node: None if it is unknown."""

    kubelet_id: str
    healthy: bool
    numa_node: int | None = None


class DeviceList:
    """Lists a device table for the kubelet, and finds the device behind a kubelet id."""

    def __init__(self, table: DeviceTable) -> None:
        self.table = table
        #: How many times the list was to be sent again.
        self.repeats = 0
        self._resource: Resource | None = None
        #: Kubelet id to the place of its device: made once for each list, because Allocate has no time for it.
        self._places: dict[str, int] = {}

    def follow(self, table: DeviceTable) -> None:
        """List another table from now on. A stream that is open stays open, and goes on with its devices."""
        former, self.table = self.table, table
        former.wake()

    def repeat(self) -> None:
        """Give the list again to whoever waits for another one."""
        self.repeats += 1
        self.table.wake()

    def listed(self) -> tuple[Listed, ...]:
        """Every share of every device that is shown, in the order of the resource."""
        self._read()
        resource = self.table.resource
        return tuple(
            Listed(kubelet_id, reason is None, device.numa_node)
            for device, reason in self.table.shown()
            for kubelet_id in resource.kubelet_ids(device)
        )

    async def changed(self, last: tuple[Listed, ...] | None, repeats: int = 0) -> tuple[Listed, ...]:
        """The list, as soon as it is another one than ``last``, or was to be sent again more than ``repeats`` times."""
        while True:
            change = self.table.change
            listed = self.listed()
            if listed != last or repeats != self.repeats:
                return listed
            await change.wait()

    def devices_of(self, kubelet_ids: Iterable[str]) -> list[Device]:
        """The devices behind kubelet ids (in any order), each once, in the order of the resource.

        Raises KeyError with the first id that is no device of this resource.
        """
        self._read()
        devices = self.table.resource.devices
        return [devices[place] for place in sorted({self._places[each] for each in kubelet_ids})]

    def _read(self) -> None:
        """Take in the table's devices if they are other ones than before."""
        if self.table.resource is not self._resource:
            self._resource = self.table.resource
            self._places = self._resource.places()


def without_room(resource: Resource, staying: Sequence[Device], found: Sequence[Device]) -> dict[str, str]:
    """The devices found for which a ListAndWatch answer has no room beside those that stay, each with the reason."""
    size = sum(listed_size(resource, device) for device in staying)
    left_out = {}
    for device in found:
        size += listed_size(resource, device)
        if size > LIMIT:
            left_out[device.id] = "the kubelet takes no list of more than %d bytes" % LIMIT
    return left_out
