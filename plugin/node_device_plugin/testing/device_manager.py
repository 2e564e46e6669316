"""The stand-in's device manager: registration, the books, the checkpoint, capacity, and allocation to containers.

Written after ManagerImpl of pkg/kubelet/cm/devicemanager of Kubernetes 1.36. It needs a directory and an event loop,
nothing of a node.
"""

from __future__ import annotations

import os
import random
import socket
import stat
import time
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Set

import grpc
import grpc.aio

from ..kubelet_checkpoint import FILE_NAME
from ..wire import device_plugin_v1beta1_pb2 as api
from ..wire import device_plugin_v1beta1_pb2_grpc as api_grpc
from . import checkpoint, klog
from .device_state import DeviceState, Held
from .plugin_clients import Client, PluginClients, in_go

#: The registration socket, in the device plugin directory.
SOCKET_NAME = "kubelet.sock"
#: Seconds that a resource keeps its capacity after its plugin has gone.
GRACE_PERIOD = 300.0
#: Seconds that PreStartContainer may take; Allocate and GetPreferredAllocation have no limit at all.
PRE_START_TIMEOUT = 30.0


class AllocationError(Exception):
    """Why a container cannot have its devices, in the kubelet's words."""


class Endpoint:
    """A plugin as allocation sees it. client: None after a kubelet restart, until the plugin is back.

    stopped_at: when its connection was lost. has_sent: whether it has sent its devices.
    """

    def __init__(
        self, client: Optional[Client], options: Optional[api.DevicePluginOptions], stopped_at: Optional[float] = None
    ) -> None:
        self.client = client
        self.options = options or api.DevicePluginOptions()
        self.stopped_at = stopped_at
        self.has_sent = False

    def stub(self) -> api_grpc.DevicePluginAsyncStub:
        """What to call; raises AllocationError after the plugin has gone."""
        if self.client is None or self.stopped_at is not None:
            raise AllocationError("endpoint has been stopped")
        return self.client.stub


class Capacity(NamedTuple):
    """What the node's status shows, by resource. removed: gone for longer than the grace period, shown as 0."""

    capacity: Dict[str, int]
    allocatable: Dict[str, int]
    removed: List[str]


class DeviceManager:
    """One life of a kubelet's device manager.

    directory: the device plugin directory. active_pods: the uids of the pods that may hold devices; without it, every
    pod that ever asked. is_running: whether a container (pod uid, name) ran already when this kubelet started; asked
    only until sources_ready is set. clock: seconds. chance: the order of ids, which is Go's map order in a kubelet.
    """

    def __init__(
        self,
        directory: str,
        active_pods: Optional[Callable[[], Set[str]]] = None,
        is_running: Callable[[str, str], bool] = lambda pod_uid, container: False,
        clock: Callable[[], float] = time.monotonic,
        chance: Optional[random.Random] = None,
    ) -> None:
        self.directory = directory
        self.state = DeviceState()
        self.endpoints: Dict[str, Endpoint] = {}
        self.sources_ready = True
        self._active_pods = active_pods
        self._is_running = is_running
        self._clock = clock
        self._chance = chance or random.Random()
        self._clients = PluginClients(directory, self._connected, self._received, self._disconnected)
        self._server: Optional[grpc.aio.Server] = None

    @property
    def socket(self) -> str:
        """Where plugins register."""
        return os.path.join(self.directory, SOCKET_NAME)

    async def start(self) -> None:
        """Replay the checkpoint, sweep the directory's sockets, and listen."""
        self._replay()
        os.makedirs(self.directory, mode=0o755, exist_ok=True)
        self._sweep()
        self._server = grpc.aio.server()
        api_grpc.add_RegistrationServicer_to_server(self._clients, self._server)
        self._server.add_insecure_port("unix:" + self.socket)
        await self._server.start()

    async def stop(self) -> None:
        """End as a kubelet does that gets SIGTERM: connections break, and its socket stays behind, dead."""
        if self._server is None:
            return
        await self._server.stop(None)
        self._server = None
        await self._clients.close()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(self.socket)

    def should_reset_extended_resources(self) -> bool:
        """Whether the node is taken for a new one: every extended resource in its status is then set to 0.

        The kubelet lists its checkpoints by listing this directory, so any entry but a dotfile counts as one.
        """
        return not any(not name.startswith(".") for name in os.listdir(self.directory))

    def capacity(self) -> Capacity:
        """What the node's status shows; resources whose plugin has gone for too long are forgotten by this call."""
        now = self._clock()
        gone = {
            resource
            for resource in {*self.state.healthy, *self.state.unhealthy}
            if resource not in self.endpoints or self._grace_is_over(self.endpoints[resource], now)
        }
        result = Capacity({}, {}, sorted(gone))
        for resource in {*self.state.healthy, *self.state.unhealthy} - gone:
            allocatable = len(self.state.healthy.get(resource, ()))
            result.capacity[resource] = allocatable + len(self.state.unhealthy.get(resource, ()))
            if resource in self.state.healthy:
                result.allocatable[resource] = allocatable
        for resource in gone:
            self.endpoints.pop(resource, None)
            self.state.forget(resource)
        if gone:
            self._write()
        return result

    async def allocate(self, pod_uid: str, container: str, limits: Mapping[str, int]) -> None:
        """Give a container its devices; raises AllocationError. limits: resource to count, any resource of a pod."""
        changed = False
        for resource in self._in_chance_order(limits):
            if not self.state.is_known(resource):
                # Nobody's business: the container runs without (and is told nothing).
                continue
            self.free_inactive()
            ids = await self._choose(pod_uid, container, resource, limits[resource])
            if not ids:
                continue
            changed = True
            endpoint = self.endpoints.get(resource)
            try:
                if endpoint is None:
                    raise AllocationError("unknown Device Plugin %s" % resource)
                response = await self._ask_plugin(endpoint, resource, container, self._in_chance_order(ids))
            except AllocationError:
                self.state.recount()
                raise
            self.state.hold(pod_uid, container, resource, self._in_chance_order(ids), response)
        if changed:
            self._write()

    async def before_start(self, pod_uid: str, container: str, limits: Mapping[str, int]) -> Dict[str, Held]:
        """What a container that is about to be created gets, by resource: what was allocated, ever since.

        Calls PreStartContainer where a plugin wants it; raises AllocationError.
        """
        for resource in limits:
            if not self.state.is_known(resource) or limits[resource] == 0:
                continue
            endpoint = self.endpoints.get(resource)
            if endpoint is None:
                raise AllocationError("endpoint not found in cache for a registered resource: %s" % resource)
            ids = self.state.held_ids(pod_uid, container, resource)
            if endpoint.options.pre_start_required:
                if ids is None:
                    raise AllocationError(
                        "no devices found allocated in local cache for pod %s, container %s, resource %s"
                        % (pod_uid, container, resource)
                    )
                try:
                    await endpoint.stub().PreStartContainer(
                        api.PreStartContainerRequest(devices_ids=self._in_chance_order(ids)), timeout=PRE_START_TIMEOUT
                    )
                except grpc.aio.AioRpcError as error:
                    message = "device plugin PreStartContainer rpc failed with err: %s" % in_go(error)
                    raise AllocationError(message) from error
            if ids is None:
                klog.info(2, "Needs to re-allocate device plugin resources for pod", containerName=container)
                await self.allocate(pod_uid, container, limits)
        return dict(self.state.held_by(pod_uid, container))

    def free_inactive(self) -> None:
        """Free the devices of pods that have ended."""
        if self._active_pods is not None and self.sources_ready:
            self.state.keep_pods(self._active_pods())

    async def _choose(self, pod_uid: str, container: str, resource: str, required: int) -> List[str]:
        held = self.state.held_ids(pod_uid, container, resource)
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
        if resource not in self.state.healthy:
            raise AllocationError("cannot allocate unregistered device %s" % resource)
        healthy = self.state.healthy[resource]
        if not healthy:
            raise AllocationError("no healthy devices present; cannot allocate unhealthy devices %s" % resource)
        if held is not None and not held <= healthy:
            raise AllocationError(
                "previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s" % resource
            )
        if not needed:
            return []
        allocated = self.state.allocated.setdefault(resource, set())
        available = healthy - allocated
        if len(available) < needed:
            raise AllocationError(
                "requested number of devices unavailable for %s. Requested: %d, Available: %d"
                % (resource, needed, len(available))
            )
        preferred = await self._preferred(resource, available, needed)
        # Only advice: what is not available is passed over, and what lacks is filled up by chance.
        ids = self._in_chance_order(preferred & available)
        ids += self._in_chance_order(available - preferred)
        self.state.allocated.setdefault(resource, set()).update(ids[:needed])
        return ids[:needed]

    async def _preferred(self, resource: str, available: Set[str], size: int) -> Set[str]:
        endpoint = self.endpoints.get(resource)
        if endpoint is None:
            raise AllocationError("endpoint not found in cache for a registered resource: %s" % resource)
        if not endpoint.options.get_preferred_allocation_available:
            return set()
        request = api.PreferredAllocationRequest()
        request.container_requests.add(available_deviceIDs=self._in_chance_order(available), allocation_size=size)
        try:
            response = await endpoint.stub().GetPreferredAllocation(request)
        except (grpc.aio.AioRpcError, AllocationError) as error:
            words = in_go(error) if isinstance(error, grpc.aio.AioRpcError) else str(error)
            raise AllocationError("device plugin GetPreferredAllocation rpc failed with err: %s" % words) from error
        return set(response.container_responses[0].deviceIDs) if response.container_responses else set()

    async def _ask_plugin(
        self, endpoint: Endpoint, resource: str, container: str, ids: List[str]
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
            # No deadline: a plugin that hangs here stalls the admission of every pod of the node.
            response = await endpoint.stub().Allocate(request)
        except grpc.aio.AioRpcError as error:
            raise AllocationError(in_go(error)) from error
        if not response.container_responses:
            raise AllocationError("no containers return in allocation response %s" % response)
        return response.container_responses[0]

    def _in_chance_order(self, items: Mapping[str, int] | Set[str] | List[str]) -> List[str]:
        shuffled = sorted(items)
        self._chance.shuffle(shuffled)
        return shuffled

    def _connected(self, client: Client, options: api.DevicePluginOptions) -> None:
        self.endpoints[client.resource] = Endpoint(client, options)

    def _received(self, resource: str, response: api.ListAndWatchResponse) -> None:
        self.state.update(resource, response.devices)
        self.endpoints[resource].has_sent = True
        self._write()
        klog.info(
            2,
            "Processed device updates for resource",
            resourceName=resource,
            totalCount=len(response.devices),
            healthyCount=len(self.state.healthy[resource]),
        )

    def _disconnected(self, resource: str) -> None:
        endpoint = self.endpoints.get(resource)
        if endpoint is not None:
            self.state.mark_unhealthy(resource)
            klog.info(2, "Endpoint became unhealthy", resourceName=resource)
            endpoint.stopped_at = self._clock()

    @staticmethod
    def _grace_is_over(endpoint: Endpoint, now: float) -> bool:
        return endpoint.stopped_at is not None and now - endpoint.stopped_at > GRACE_PERIOD

    def _replay(self) -> None:
        try:
            data = checkpoint.read(self.directory)
        except checkpoint.CorruptCheckpoint as error:
            klog.error("Continue after failing to read checkpoint file.", error)
            return
        if data is not None:
            self.state.replay(data)
            for resource in data.registered:
                self.endpoints[resource] = Endpoint(None, None, stopped_at=self._clock())

    def _write(self) -> None:
        checkpoint.write(self.directory, self.state.to_checkpoint())

    def _sweep(self) -> None:
        """Remove the sockets at the top of the directory; those in folders below it stay."""
        for name in os.listdir(self.directory):
            path = os.path.join(self.directory, name)
            if name == FILE_NAME:
                continue
            try:
                if stat.S_ISSOCK(os.stat(path).st_mode):
                    os.unlink(path)
            except OSError as error:
                klog.error("Failed to remove file", error, path=path)
