"""What a kubelet knows about devices: which there are, how they are, and who holds which. Data only: no call, no file.

Written after ManagerImpl and podDevices of pkg/kubelet/cm/devicemanager of Kubernetes 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

from .checkpoint import NO_NUMA_NODE, CheckpointData, Entry

#: The only health that counts as such.
HEALTHY = "Healthy"


class Held(NamedTuple):
    """Devices of one resource in one container. device_ids: NUMA node to ids. response: what Allocate answered."""

    device_ids: dict[int, list[str]]
    response: api.ContainerAllocateResponse

    def ids(self) -> set[str]:
        """The devices, each once."""
        return {device for ids in self.device_ids.values() for device in ids}


class DeviceState:
    """The kubelet's books. Pods are known by uid, and containers by name within their pod."""

    def __init__(self) -> None:
        self.devices: dict[str, dict[str, api.Device]] = {}
        self.healthy: dict[str, set[str]] = {}
        self.unhealthy: dict[str, set[str]] = {}
        self.allocated: dict[str, set[str]] = {}
        self._held: dict[tuple[str, str], dict[str, Held]] = {}

    def update(self, resource: str, devices: Iterable[api.Device]) -> None:
        """Take over a plugin's list; what stood there before is forgotten."""
        self.devices[resource] = {device.ID: device for device in devices}
        self.healthy[resource] = set()
        self.unhealthy[resource] = set()
        for device in self.devices[resource].values():
            (self.healthy if device.health == HEALTHY else self.unhealthy)[resource].add(device.ID)

    def mark_unhealthy(self, resource: str) -> None:
        """A plugin is gone: its devices stay, and none of them can be given out."""
        # A resource whose plugin never sent a list is no healthy one afterwards either.
        gone = self.healthy.get(resource, set())
        if resource in self.healthy:
            self.healthy[resource] = set()
        self.unhealthy[resource] = self.unhealthy.get(resource, set()) | gone

    def forget(self, resource: str) -> None:
        """A plugin has been gone for too long."""
        self.healthy.pop(resource, None)
        self.unhealthy.pop(resource, None)

    def is_known(self, resource: str) -> bool:
        """Whether a request for ``resource`` is the device manager's business at all."""
        return resource in self.healthy or resource in self.allocated

    def hold(
        self, pod_uid: str, container: str, resource: str, ids: Iterable[str], response: api.ContainerAllocateResponse
    ) -> None:
        """Write down what a container got."""
        by_node: dict[int, list[str]] = {}
        for device in ids:
            known = self.devices.get(resource, {}).get(device)
            nodes = [node.ID for node in known.topology.nodes] if known is not None else []
            for node in nodes or [NO_NUMA_NODE]:
                by_node.setdefault(node, []).append(device)
        self._held.setdefault((pod_uid, container), {})[resource] = Held(by_node, response)

    def held_by(self, pod_uid: str, container: str) -> Mapping[str, Held]:
        """Resource to what a container holds of it."""
        return self._held.get((pod_uid, container), {})

    def held_ids(self, pod_uid: str, container: str, resource: str) -> set[str] | None:
        """The devices of one resource that a container holds; None where it has never got any."""
        held = self.held_by(pod_uid, container).get(resource)
        return None if held is None else held.ids()

    def pods(self) -> set[str]:
        """Every pod that holds something."""
        return {pod_uid for pod_uid, _ in self._held}

    def keep_pods(self, active: set[str]) -> None:
        """Free what is held by any pod but the active ones."""
        if self.pods() <= active:
            return
        self._held = {key: held for key, held in self._held.items() if key[0] in active}
        self.recount()

    def recount(self) -> None:
        """Allocated is what containers hold, and nothing else: an Allocate that failed leaves no trace."""
        self.allocated = {}
        for resources in self._held.values():
            for resource, held in resources.items():
                self.allocated.setdefault(resource, set()).update(held.ids())

    def allocatable(self) -> Iterator[tuple[str, api.Device]]:
        """Every healthy device with its resource, held or free."""
        for resource, ids in self.healthy.items():
            for device in sorted(ids):
                if device in self.devices.get(resource, {}):
                    yield resource, self.devices[resource][device]

    def to_checkpoint(self) -> CheckpointData:
        """What is written to the disk: healthy devices only."""
        return CheckpointData(
            [
                Entry(pod_uid, container, resource, held.device_ids, held.response.SerializeToString())
                for (pod_uid, container), resources in self._held.items()
                for resource, held in resources.items()
            ],
            {resource: list(ids) for resource, ids in self.healthy.items()},
        )

    def replay(self, data: CheckpointData) -> None:
        """After a restart: who holds what is as before, and every resource has no device until its plugin is back."""
        for entry in data.entries:
            response = api.ContainerAllocateResponse.FromString(entry.allocate_response)
            ids = {node: list(devices) for node, devices in entry.device_ids.items()}
            self._held.setdefault((entry.pod_uid, entry.container), {})[entry.resource] = Held(ids, response)
        self.recount()
        for resource in data.registered:
            self.healthy[resource] = set()
            self.unhealthy[resource] = set()
