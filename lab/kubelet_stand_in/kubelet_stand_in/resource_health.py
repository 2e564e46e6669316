"""``allocatedResourcesStatus`` of containers.

A kubelet updates this field at a container's start, when a plugin's list changes a device that the pod holds, and about
once a minute. For a changed list, it compares only device ids, without their resource. If a device is missing from its
plugin's list, it first keeps its health, and counts as healthy after the next update. Follows
UpdateAllocatedResourcesStatus and genericDeviceUpdateCallback of the device manager in Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

from .device_state import HEALTHY, DeviceState

#: A container's status: the health of each device, by resource and id.
Status = dict[str, dict[str, str]]


class ResourceHealth:
    """The health of the devices in ``state`` for the pods' statuses."""

    def __init__(self, state: DeviceState) -> None:
        self._state = state
        self._seen: dict[str, dict[str, Status]] = {}

    def look_at(self, pod_uid: str, containers: Iterable[str]) -> None:
        """Update the statuses of a pod's containers."""
        self._seen[pod_uid] = {
            container: {
                resource: {device: self._health(resource, device) for device in sorted(held.ids())}
                for resource, held in sorted(self._state.held_by(pod_uid, container).items())
            }
            for container in containers
        }

    def of(self, pod_uid: str, container: str) -> list[dict[str, Any]]:
        """The field's value for a container."""
        return [
            {"name": resource, "resources": [{"resourceID": i, "health": h} for i, h in devices.items()]}
            for resource, devices in self._seen.get(pod_uid, {}).get(container, {}).items()
        ]

    def listed(self, before: Mapping[str, api.Device], after: Mapping[str, api.Device]) -> None:
        """Update the pods that hold a new or changed device of a plugin's list."""
        touched = {device for device in after if device not in before or before[device].health != after[device].health}
        for pod_uid, containers in list(self._seen.items()):
            held = {
                device
                for container in containers
                for devices in self._state.held_by(pod_uid, container).values()
                for device in devices.ids()
            }
            if held & touched:
                self.look_at(pod_uid, list(containers))

    def _health(self, resource: str, device: str) -> str:
        known = self._state.devices.get(resource, {}).get(device)
        return HEALTHY if known is None or known.health == HEALTHY else "Unhealthy"
