"""Chooses a container's devices, and calls the plugins for the allocation.

Follows allocateContainerResources and devicesToAllocate in pkg/kubelet/cm/devicemanager of Kubernetes 1.36.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from typing import Callable

from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

from . import klog
from .device_state import DeviceState, Held
from .plugin_clients import CallError, Client

#: Timeout in seconds of PreStartContainer; Allocate and GetPreferredAllocation have no timeout.
PRE_START_TIMEOUT = 30.0


class AllocationError(Exception):
    """A container cannot have its devices. The message is the kubelet's message."""


class Endpoint:
    """A plugin's endpoint for allocation. client: None after a kubelet restart, until the plugin registers again.

    stopped_at: the time at which the connection was lost. has_sent: whether the plugin has sent a device list.
    """

    def __init__(
        self, client: Client | None, options: api.DevicePluginOptions | None, stopped_at: float | None = None
    ) -> None:
        self.client = client
        self.options = options or api.DevicePluginOptions()
        self.stopped_at = stopped_at
        self.has_sent = False

    def connected(self) -> Client:
        """The plugin's client. Raises CallError if the plugin is gone."""
        if self.client is None or self.stopped_at is not None:
            raise CallError("endpoint has been stopped")
        return self.client


class Allocator:
    """Allocates devices to containers. The device manager shares its state and endpoints with the allocator.

    free_inactive: frees the devices of finished pods. write: writes the checkpoint. is_running: whether a container
    (pod uid, name) already ran when this kubelet started; called only until sources_ready is set. chance: determines
    the order of ids, which is the order of Go's maps in a real kubelet.
    """

    def __init__(
        self,
        state: DeviceState,
        endpoints: Mapping[str, Endpoint],
        free_inactive: Callable[[], None],
        write: Callable[[], None],
        is_running: Callable[[str, str], bool],
        chance: random.Random,
    ) -> None:
        self.sources_ready = True
        self._state = state
        self._endpoints = endpoints
        self._free_inactive = free_inactive
        self._write = write
        self._is_running = is_running
        self._chance = chance

    async def allocate(self, pod_uid: str, container: str, limits: Mapping[str, int]) -> None:
        """Allocate a container's devices. Raises AllocationError. limits: maps each resource to its count."""
        changed = False
        for resource in self._in_chance_order(limits):
            if not self._state.is_known(resource):
                # No device plugin offers this resource, so the container silently runs without the resource.
                continue
            self._free_inactive()
            ids = await self._choose(pod_uid, container, resource, limits[resource])
            if not ids:
                continue
            changed = True
            endpoint = self._endpoints.get(resource)
            try:
                if endpoint is None:
                    raise AllocationError("unknown Device Plugin %s" % resource)
                response = await self._ask_plugin(endpoint, resource, container, self._in_chance_order(ids))
            except AllocationError:
                self._state.recount()
                raise
            self._state.hold(pod_uid, container, resource, self._in_chance_order(ids), response)
        if changed:
            self._write()

    async def before_start(self, pod_uid: str, container: str, limits: Mapping[str, int]) -> dict[str, Held]:
        """The devices from a container's first allocation, by resource. The caller then creates the container.

        Calls PreStartContainer if a plugin requires this call. Raises AllocationError.
        """
        for resource in limits:
            if not self._state.is_known(resource) or limits[resource] == 0:
                continue
            endpoint = self._endpoints.get(resource)
            if endpoint is None:
                raise AllocationError("endpoint not found in cache for a registered resource: %s" % resource)
            ids = self._state.held_ids(pod_uid, container, resource)
            if endpoint.options.pre_start_required:
                if ids is None:
                    raise AllocationError(
                        "no devices found allocated in local cache for pod %s, container %s, resource %s"
                        % (pod_uid, container, resource)
                    )
                request = api.PreStartContainerRequest(devices_ids=self._in_chance_order(ids))
                try:
                    plugin = endpoint.connected()
                    await plugin.call(plugin.stub.PreStartContainer, request, PRE_START_TIMEOUT)
                except CallError as error:
                    message = "device plugin PreStartContainer rpc failed with err: %s" % error
                    raise AllocationError(message) from error
            if ids is None:
                klog.info(2, "Needs to re-allocate device plugin resources for pod", containerName=container)
                await self.allocate(pod_uid, container, limits)
        return dict(self._state.held_by(pod_uid, container))

    async def _choose(self, pod_uid: str, container: str, resource: str, required: int) -> list[str]:
        held = self._state.held_ids(pod_uid, container, resource)
        needed = required
        if held is not None:
            needed -= len(held)
            if needed:
                raise AllocationError(
                    'pod "%s" container "%s" changed request for resource "%s" from %d to %d'
                    % (pod_uid, container, resource, len(held), required)
                )
        if not self.sources_ready and self._is_running(pod_uid, container):
            return []
        if resource not in self._state.healthy:
            raise AllocationError("cannot allocate unregistered device %s" % resource)
        healthy = self._state.healthy[resource]
        if not healthy:
            raise AllocationError("no healthy devices present; cannot allocate unhealthy devices %s" % resource)
        if held is not None and not held <= healthy:
            raise AllocationError(
                "previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s" % resource
            )
        if not needed:
            return []
        allocated = self._state.allocated.setdefault(resource, set())
        available = healthy - allocated
        if len(available) < needed:
            raise AllocationError(
                "requested number of devices unavailable for %s. Requested: %d, Available: %d"
                % (resource, needed, len(available))
            )
        preferred = await self._preferred(resource, available, needed)
        # The preference is only advice. The kubelet ignores unavailable ids, and chooses missing ids at random.
        ids = self._in_chance_order(preferred & available)
        ids += self._in_chance_order(available - preferred)
        self._state.allocated.setdefault(resource, set()).update(ids[:needed])
        return ids[:needed]

    async def _preferred(self, resource: str, available: set[str], size: int) -> set[str]:
        endpoint = self._endpoints.get(resource)
        if endpoint is None:
            raise AllocationError("endpoint not found in cache for a registered resource: %s" % resource)
        if not endpoint.options.get_preferred_allocation_available:
            return set()
        request = api.PreferredAllocationRequest()
        request.container_requests.add(available_deviceIDs=self._in_chance_order(available), allocation_size=size)
        try:
            plugin = endpoint.connected()
            response = await plugin.call(plugin.stub.GetPreferredAllocation, request)
        except CallError as error:
            raise AllocationError("device plugin GetPreferredAllocation rpc failed with err: %s" % error) from error
        return set(response.container_responses[0].deviceIDs) if response.container_responses else set()

    async def _ask_plugin(
        self, endpoint: Endpoint, resource: str, container: str, ids: list[str]
    ) -> api.ContainerAllocateResponse:
        klog.info(
            4,
            "Making allocation request for device plugin",
            devices=ids,
            resourceName=resource,
            containerName=container,
        )
        request = api.AllocateRequest()
        request.container_requests.add(devices_ids=ids)
        try:
            plugin = endpoint.connected()
            # The call has no deadline, so a plugin that hangs here stalls the admission of every pod on the node.
            response = await plugin.call(plugin.stub.Allocate, request)
        except CallError as error:
            raise AllocationError(str(error)) from error
        if not response.container_responses:
            raise AllocationError("no containers return in allocation response %s" % response)
        return response.container_responses[0]

    def _in_chance_order(self, items: Iterable[str]) -> list[str]:
        shuffled = sorted(items)
        self._chance.shuffle(shuffled)
        return shuffled
