"""The stand-in's device manager: its directory, device state, checkpoint and the node's capacity.

Follows ManagerImpl in pkg/kubelet/cm/devicemanager of Kubernetes 1.36 and 1.37. The device manager needs no node, only
a directory and an event loop.
"""

from __future__ import annotations

import os
import random
import socket
import stat
import time
from typing import Callable, NamedTuple

from node_device_plugin.kubelet.checkpoint import FILE_NAME
from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api
from node_device_plugin.wire import device_plugin_v1beta1_pb2_grpc as api_grpc

from . import checkpoint, klog
from .allocator import Allocator, Endpoint
from .device_state import DeviceState
from .plugin_clients import DIAL_TIMEOUT, SEVERAL_SOCKETS, CallError, Client, PluginClients
from .resource_health import ResourceHealth

#: The registration socket, in the device plugin directory.
SOCKET_NAME = "kubelet.sock"
#: Seconds for which a resource keeps its capacity after its plugin is gone.
GRACE_PERIOD = 300.0


class Capacity(NamedTuple):
    """The node's capacity by resource. removed: resources after their grace period, which the status reports as 0."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    removed: list[str]


class DeviceManager:
    """A device manager, from one start of the kubelet until its stop.

    directory: the device plugin directory. active_pods: returns the uids of pods that may hold devices; if None, no
    pod ever loses its devices. clock, dial_timeout: seconds. is_running, chance: see Allocator. minor: the version of
    Kubernetes.
    """

    def __init__(
        self,
        directory: str,
        active_pods: Callable[[], set[str]] | None = None,
        is_running: Callable[[str, str], bool] = lambda pod_uid, container: False,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
        dial_timeout: float = DIAL_TIMEOUT,
        minor: tuple[int, int] = (1, 36),
    ) -> None:
        self.directory = directory
        self.state = DeviceState()
        self.health = ResourceHealth(self.state)
        #: Maps each resource to the endpoint that allocations call.
        self.endpoints: dict[str, Endpoint] = {}
        #: From 1.37 on, the endpoints of all connected plugins, by resource and socket.
        self._connections: dict[str, dict[str, Endpoint]] | None = {} if minor >= SEVERAL_SOCKETS else None
        self._active_pods = active_pods
        self._clock = clock
        self.allocator = Allocator(
            self.state, self.endpoints, self.free_inactive, self._write, is_running, chance or random.Random()
        )
        self.clients = PluginClients(
            directory, self._connected, self._received, self._disconnected, dial_timeout, minor
        )
        self._server: grpc.aio.Server | None = None

    @property
    def socket(self) -> str:
        """The registration socket."""
        return os.path.join(self.directory, SOCKET_NAME)

    async def start(self) -> None:
        """Replay the checkpoint, remove the directory's sockets, and listen."""
        self._replay()
        os.makedirs(self.directory, mode=0o755, exist_ok=True)
        self._sweep()
        self._server = grpc.aio.server()
        api_grpc.add_RegistrationServicer_to_server(self.clients, self._server)
        self._server.add_insecure_port("unix:" + self.socket)
        await self._server.start()

    async def stop(self) -> None:
        """Stop as a kubelet does on SIGTERM. Connections break, and the registration socket stays in the directory."""
        if self._server is None:
            return
        await self._server.stop(None)
        self._server = None
        await self.clients.close()
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(self.socket)

    def should_reset_extended_resources(self) -> bool:
        """Whether the node counts as new. In this case, the kubelet sets every extended resource in its status to 0.

        The kubelet lists this directory to find checkpoints, so every entry except a dotfile counts as a checkpoint.
        """
        return not any(not name.startswith(".") for name in os.listdir(self.directory))

    def capacity(self) -> Capacity:
        """The node's capacity. The call also forgets resources whose grace period has ended."""
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

    def free_inactive(self) -> None:
        """Free the devices of finished pods."""
        if self._active_pods is not None and self.allocator.sources_ready:
            self.state.keep_pods(self._active_pods())

    def _connected(self, client: Client, options: api.DevicePluginOptions) -> None:
        endpoint = Endpoint(client, options)
        if self._connections is not None:
            sockets = self._connections.setdefault(client.resource, {})
            if client.socket in sockets:
                raise CallError("device plugin already connected: %s" % client.socket)
            sockets[client.socket] = endpoint
        self.endpoints[client.resource] = endpoint

    def _received(self, resource: str, response: api.ListAndWatchResponse) -> None:
        before = self.state.devices.get(resource, {})
        self.state.update(resource, response.devices)
        self.health.listed(before, self.state.devices[resource])
        self.endpoints[resource].has_sent = True
        self._write()
        klog.info(
            2,
            "Processed device updates for resource",
            resourceName=resource,
            totalCount=len(response.devices),
            healthyCount=len(self.state.healthy[resource]),
        )

    def _disconnected(self, resource: str, socket: str) -> None:
        endpoint = self.endpoints.get(resource)
        if self._connections is not None:
            sockets = self._connections.get(resource, {})
            endpoint = sockets.pop(socket, None)
            if endpoint is not None and sockets:
                # The devices of the last list stay, and any remaining plugin takes over.
                endpoint.stopped_at = self._clock()
                self.endpoints[resource] = next(iter(sockets.values()))
                return
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
        """Remove the sockets directly in the directory. Sockets in subdirectories stay."""
        for name in os.listdir(self.directory):
            path = os.path.join(self.directory, name)
            if name == FILE_NAME:
                continue
            try:
                if stat.S_ISSOCK(os.stat(path).st_mode):
                    os.unlink(path)
            except OSError as error:
                klog.error("Failed to remove file", error, path=path)
