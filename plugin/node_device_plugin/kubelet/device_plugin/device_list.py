"""The device list of v1beta1: one entry for each share of a device, in an answer of limited size."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...declaration import Device, Resource
from ...declaration.device_plugin_api import LIMIT, kubelet_ids, listed_size, places_of
from ...devices.table import DeviceTable
from ...support.channels import grpc


class NotAllocatable(Exception):
    """A requested device cannot be allocated; the message names the device and the reason. code: for the kubelet.

    NOT_FOUND for an id that the resource does not have, FAILED_PRECONDITION for a device that is unhealthy, gone or
    held under another name, RESOURCE_EXHAUSTED for more devices than a container may have.
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Listed(NamedTuple):
    """A list entry for one share of a device. numa_node: None if unknown."""

    kubelet_id: str
    healthy: bool
    numa_node: int | None = None


class DeviceList:
    """Lists the devices of a table for the kubelet, and finds the device behind a kubelet id."""

    def __init__(self, table: DeviceTable) -> None:
        self.table = table
        #: How many times ``repeat`` was called.
        self.repeats = 0
        self._resource: Resource | None = None
        #: Kubelet id to the index of its device: built once for each list, so that Allocate stays fast.
        self._places: dict[str, int] = {}

    def follow(self, table: DeviceTable) -> None:
        """List another table from now on. An open stream continues with the new table's devices."""
        former, self.table = self.table, table
        former.wake()

    def repeat(self) -> None:
        """Send the list again to every waiting stream, even if unchanged."""
        self.repeats += 1
        self.table.wake()

    def listed(self) -> tuple[Listed, ...]:
        """Every share of every shown device, in the order of the resource."""
        self._read()
        resource = self.table.resource
        return tuple(
            Listed(kubelet_id, reason is None, device.numa_node)
            for device, reason in self.table.shown()
            for kubelet_id in kubelet_ids(resource, device)
        )

    async def changed(self, last: tuple[Listed, ...] | None, repeats: int = 0) -> tuple[Listed, ...]:
        """Return the list once it differs from ``last`` or ``repeats`` is no longer current."""
        while True:
            change = self.table.change
            listed = self.listed()
            if listed != last or repeats != self.repeats:
                return listed
            await change.wait()

    def devices_of(self, listed: Iterable[str]) -> list[Device]:
        """The devices behind kubelet ids (in any order), each once, in the order of the resource.

        Raises NotAllocatable for an id that this resource does not have.
        """
        self._read()
        resource = self.table.resource
        try:
            places = {self._places[each] for each in listed}
        except KeyError as error:
            message = f"the plugin offers no device {error.args[0]} of {resource.name}"
            raise NotAllocatable(grpc.StatusCode.NOT_FOUND, message) from error
        return [resource.devices[place] for place in sorted(places)]

    def _read(self) -> None:
        """Rebuild the index if the table's devices have changed."""
        if self.table.resource is not self._resource:
            self._resource = self.table.resource
            self._places = places_of(self._resource)


def without_room(resource: Resource, staying: Sequence[Device], found: Sequence[Device]) -> dict[str, str]:
    """Devices in ``found`` that do not fit in a list with ``staying``: device id to the reason."""
    size = sum(listed_size(resource, device) for device in staying)
    left_out = {}
    for device in found:
        size += listed_size(resource, device)
        if size > LIMIT:
            left_out[device.id] = "the kubelet accepts a list of at most %d bytes" % LIMIT
    return left_out
