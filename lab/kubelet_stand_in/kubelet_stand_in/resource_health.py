"""``allocatedResourcesStatus`` of containers, as old as the kubelet's is.

A kubelet makes it when it looks at a pod: at a container's start, when a plugin's list says something new of a device
that the pod holds, and about once a minute. Devices are told apart by id alone, whatever their resource. One that is
missing from its plugin's list is not heard of: it reads as before, and after the next look as healthy.
Written after UpdateAllocatedResourcesStatus and genericDeviceUpdateCallback of the device manager of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

from .device_state import HEALTHY, DeviceState

#: A container's status: resource to id to health.
Status = dict[str, dict[str, str]]


class ResourceHealth:
    """What pods' statuses say about the devices in ``state``."""

    def __init__(self, state: DeviceState) -> None:
        self._state = state
        self._seen: dict[str, dict[str, Status]] = {}

    def look_at(self, pod_uid: str, containers: Iterable[str]) -> None:
        """Make the statuses of a pod's containers anew."""
        self._seen[pod_uid] = {
            container: {
                resource: {device: self._health(resource, device) for device in sorted(held.ids())}
                for resource, held in sorted(self._state.held_by(pod_uid, container).items())
            }
            for container in containers
        }

    def of(self, pod_uid: str, container: str) -> list[dict[str, Any]]:
        """The field's value."""
        return [
            {"name": resource, "resources": [{"resourceID": i, "health": h} for i, h in devices.items()]}
            for resource, devices in self._seen.get(pod_uid, {}).get(container, {}).items()
        ]

    def listed(self, before: Mapping[str, api.Device], after: Mapping[str, api.Device]) -> None:
        """A plugin has sent another list: look at the pods that hold what is new in it or has changed."""
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
