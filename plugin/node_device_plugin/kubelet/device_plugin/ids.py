"""The ids in the device lists of v1beta1, as the rest of the plugin uses them."""

from __future__ import annotations

from ...declaration import Device, Resource
from ...declaration.device_plugin_api import devices_behind, kubelet_ids
from ...devices.holdings import HeldId


class ListedId(HeldId):
    """The id of a whole device, or of one of its shares."""

    @property
    def device_ids(self) -> tuple[str, ...]:
        return devices_behind(self)

    def is_of(self, resource: Resource, device: Device) -> bool:
        return self in kubelet_ids(resource, device)


def listed_ids(resource: Resource, device: Device) -> list[HeldId]:
    """The ids of a device in the kubelet's list."""
    return list(map(ListedId, kubelet_ids(resource, device)))
