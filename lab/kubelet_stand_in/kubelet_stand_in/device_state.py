"""The kubelet's device state: the known devices, their health and their holders. This module does no I/O.

Follows ManagerImpl and podDevices in pkg/kubelet/cm/devicemanager of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

from .checkpoint import NO_NUMA_NODE, CheckpointData, Entry

#: The only health value that counts as healthy.
HEALTHY = "Healthy"


class Held(NamedTuple):
    """Devices of one resource in one container. device_ids: by NUMA node. response: Allocate's answer."""

    device_ids: dict[int, list[str]]
    response: api.ContainerAllocateResponse

    def ids(self) -> set[str]:
        """The devices, without duplicates."""
        return {device for ids in self.device_ids.values() for device in ids}


class DeviceState:
    """The kubelet's device state. Pods are identified by uid, containers by their name in the pod."""

    def __init__(self) -> None:
        self.devices: dict[str, dict[str, api.Device]] = {}
        self.healthy: dict[str, set[str]] = {}
        self.unhealthy: dict[str, set[str]] = {}
        self.allocated: dict[str, set[str]] = {}
        self._held: dict[tuple[str, str], dict[str, Held]] = {}

    def update(self, resource: str, devices: Iterable[api.Device]) -> None:
        """Replace a resource's devices with a plugin's list."""
        self.devices[resource] = {device.ID: device for device in devices}
        self.healthy[resource] = set()
        self.unhealthy[resource] = set()
        for device in self.devices[resource].values():
            (self.healthy if device.health == HEALTHY else self.unhealthy)[resource].add(device.ID)

    def mark_unhealthy(self, resource: str) -> None:
        """Mark the devices of a plugin that is gone as unhealthy, so that none can be allocated."""
        # A resource whose plugin never sent a list stays unknown.
        gone = self.healthy.get(resource, set())
        if resource in self.healthy:
            self.healthy[resource] = set()
        self.unhealthy[resource] = self.unhealthy.get(resource, set()) | gone

    def forget(self, resource: str) -> None:
        """Forget a resource whose plugin has been gone for too long."""
        self.healthy.pop(resource, None)
        self.unhealthy.pop(resource, None)

    def is_known(self, resource: str) -> bool:
        """Whether the device manager handles requests for ``resource``."""
        return resource in self.healthy or resource in self.allocated

    def hold(
        self, pod_uid: str, container: str, resource: str, ids: Iterable[str], response: api.ContainerAllocateResponse
    ) -> None:
        """Record a container's devices."""
        by_node: dict[int, list[str]] = {}
        for device in ids:
            known = self.devices.get(resource, {}).get(device)
            nodes = [node.ID for node in known.topology.nodes] if known is not None else []
            for node in nodes or [NO_NUMA_NODE]:
                by_node.setdefault(node, []).append(device)
        self._held.setdefault((pod_uid, container), {})[resource] = Held(by_node, response)

    def held_by(self, pod_uid: str, container: str) -> Mapping[str, Held]:
        """Maps each resource to the devices that a container holds."""
        return self._held.get((pod_uid, container), {})

    def held_ids(self, pod_uid: str, container: str, resource: str) -> set[str] | None:
        """The devices of one resource that a container holds; None if the container never received any."""
        held = self.held_by(pod_uid, container).get(resource)
        return None if held is None else held.ids()

    def pods(self) -> set[str]:
        """All pods that hold devices."""
        return {pod_uid for pod_uid, _ in self._held}

    def keep_pods(self, active: set[str]) -> None:
        """Free the devices of all pods except the active pods."""
        if self.pods() <= active:
            return
        self._held = {key: held for key, held in self._held.items() if key[0] in active}
        self.recount()

    def recount(self) -> None:
        """Recompute the allocated devices from the containers' devices, which undoes a failed Allocate."""
        self.allocated = {}
        for resources in self._held.values():
            for resource, held in resources.items():
                self.allocated.setdefault(resource, set()).update(held.ids())

    def allocatable(self) -> Iterator[tuple[str, api.Device]]:
        """Each healthy device with its resource, whether or not a container holds the device."""
        for resource, ids in self.healthy.items():
            for device in sorted(ids):
                if device in self.devices.get(resource, {}):
                    yield resource, self.devices[resource][device]

    def to_checkpoint(self) -> CheckpointData:
        """The state for the checkpoint, which lists only healthy devices."""
        return CheckpointData(
            [
                Entry(pod_uid, container, resource, held.device_ids, held.response.SerializeToString())
                for (pod_uid, container), resources in self._held.items()
                for resource, held in resources.items()
            ],
            {resource: list(ids) for resource, ids in self.healthy.items()},
        )

    def replay(self, data: CheckpointData) -> None:
        """Restore the holders after a restart. A resource has no devices until its plugin registers again."""
        for entry in data.entries:
            response = api.ContainerAllocateResponse.FromString(entry.allocate_response)
            ids = {node: list(devices) for node, devices in entry.device_ids.items()}
            self._held.setdefault((entry.pod_uid, entry.container), {})[entry.resource] = Held(ids, response)
        self.recount()
        for resource in data.registered:
            self.healthy[resource] = set()
            self.unhealthy[resource] = set()
