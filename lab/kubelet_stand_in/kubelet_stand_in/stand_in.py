"""The stand-in kubelet as one object, for tests in the same process and for the stand-in's own command."""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Callable, NamedTuple

from node_device_plugin.kubelet.checkpoint import Checkpoint, read_checkpoint
from node_device_plugin.wire import cri_v1_pb2 as cri

from .device_manager import Capacity, DeviceManager
from .memory_runtime import MemoryRuntime, Runtime
from .plugin_clients import DIAL_TIMEOUT
from .plugin_watcher import PluginWatcher
from .pod_manager import PodManager
from .pod_resources_server import PodResourcesServer
from .pod_worker import PodStatus
from .pods import Pod, parse_pod

#: Timeout in seconds of the waiting methods, and seconds between two checks.
_TIMEOUT = 60.0
_STEP = 0.005


class PodRejected(Exception):
    """A pod was rejected. reason, message: from the pod's status."""

    def __init__(self, status: PodStatus) -> None:
        self.reason = status.reason
        self.message = status.message
        super().__init__("%s: %s" % (status.reason, status.message))


class AllocatedPod(NamedTuple):
    """A running pod. containers: maps each container's name to its CRI configuration (env, devices, CDI names ...)."""

    uid: str
    name: str
    containers: dict[str, cri.ContainerConfig]


class StandInKubelet:
    """A kubelet's device manager, pods and PodResources below any directory.

    directory: the device plugin directory. root: the kubelet's root directory, by default the parent directory.
    runtime: the container runtime, by default a MemoryRuntime, which keeps its state in a restart. logs: directory of
    pods' logs. interval: seconds between two checks of a pod. clock: seconds, for the grace period of 5 minutes.
    chance: determines the order of ids. dial_timeout: seconds that Register waits for the plugin. registry_interval:
    seconds between two checks of plugins_registry. minor: the version of Kubernetes whose registration is imitated.
    """

    def __init__(
        self,
        directory: str,
        *,
        root: str | None = None,
        runtime: Runtime | None = None,
        logs: str | None = None,
        node_name: str = "node",
        interval: float = 0.02,
        clock: Callable[[], float] = time.monotonic,
        chance: random.Random | None = None,
        dial_timeout: float = DIAL_TIMEOUT,
        registry_interval: float = 1.0,
        minor: tuple[int, int] = (1, 36),
    ) -> None:
        self.directory = str(directory)
        self.root = root or os.path.dirname(self.directory)
        self.runtime: Runtime = runtime if runtime is not None else MemoryRuntime()
        self.node_name = node_name
        self.source: dict[str, Pod] = {}
        self._logs = logs or os.path.join(self.root, "logs")
        self._interval = interval
        self._clock = clock
        self._chance = chance or random.Random()
        self._dial_timeout = dial_timeout
        self._registry_interval = registry_interval
        self._minor = minor
        self._manager: DeviceManager | None = None

    async def __aenter__(self) -> StandInKubelet:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    @property
    def socket(self) -> str:
        """The registration socket."""
        return os.path.join(self.directory, "kubelet.sock")

    @property
    def pod_resources_socket(self) -> str:
        """The socket of PodResources."""
        return os.path.join(self.root, "pod-resources", "kubelet.sock")

    @property
    def manager(self) -> DeviceManager:
        """The current device manager; each start creates a new one."""
        if self._manager is None:
            raise RuntimeError("the stand-in kubelet is not running")
        return self._manager

    async def start(self) -> None:
        """Replay the checkpoint, listen, and adopt the pods in ``source``."""
        self.pods = PodManager(self.runtime, self._logs, self._interval)
        self._manager = DeviceManager(
            self.directory,
            active_pods=lambda: {pod.uid for pod in self.pods.active()},
            is_running=self.pods.was_running,
            clock=self._clock,
            chance=self._chance,
            dial_timeout=self._dial_timeout,
            minor=self._minor,
        )
        await self._manager.start()
        self._watcher = PluginWatcher(self.root, self._manager.clients, self._registry_interval)
        await self._watcher.start()
        self._pod_resources = PodResourcesServer(self.pod_resources_socket, self._manager, self.pods.active)
        await self._pod_resources.start()
        await self.pods.start(self._manager, list(self.source.values()))

    async def stop(self) -> None:
        """Stop as on SIGTERM. Containers keep running, and the registration socket stays in the directory."""
        if self._manager is None:
            return
        manager, self._manager = self._manager, None
        await self.pods.stop()
        await self._pod_resources.stop()
        await self._watcher.stop()
        await manager.stop()

    async def restart(self) -> None:
        """Stop and start."""
        await self.stop()
        await self.start()

    async def registered(self, resource: str, timeout: float = _TIMEOUT) -> dict[str, str]:
        """Wait until a plugin of ``resource`` is connected and has sent its devices. Returns health by device id."""

        def connected() -> bool:
            endpoint = self.manager.endpoints.get(resource)
            return endpoint is not None and endpoint.stopped_at is None and endpoint.has_sent

        await self.until(connected, timeout, "no plugin for %s has registered and sent devices" % resource)
        return self.devices(resource)

    async def disconnected(self, resource: str, timeout: float = _TIMEOUT) -> None:
        """Wait until the kubelet has noticed that the plugin of ``resource`` is gone."""

        def gone() -> bool:
            endpoint = self.manager.endpoints.get(resource)
            return endpoint is None or endpoint.stopped_at is not None

        await self.until(gone, timeout, "the plugin for %s is still connected" % resource)

    def devices(self, resource: str) -> dict[str, str]:
        """The health of each known device by id. A disconnect makes all unhealthy. After a restart, none is known."""
        state = self.manager.state
        healthy, unhealthy = state.healthy.get(resource, set()), state.unhealthy.get(resource, set())
        return {**dict.fromkeys(sorted(healthy), "Healthy"), **dict.fromkeys(sorted(unhealthy), "Unhealthy")}

    def capacity(self) -> Capacity:
        """The node's current capacity."""
        return self.manager.capacity()

    def checkpoint(self) -> Checkpoint | None:
        """The content of the checkpoint file."""
        return read_checkpoint(self.directory)

    async def allocate_pod(
        self, name: str, containers: Mapping[str, Mapping[str, int]], timeout: float = _TIMEOUT
    ) -> AllocatedPod:
        """Run a pod that requests devices. Raises PodRejected. Needs a MemoryRuntime.

        containers: maps each container's name to its resources and their counts.
        """
        manifest = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "containers": [
                    {"name": container, "image": "none", "resources": {"limits": dict(limits)}}
                    for container, limits in containers.items()
                ]
            },
        }
        pod = parse_pod(manifest, "", self.node_name)
        self.source[pod.uid] = pod
        status = await self.pods.add(pod)
        if status.is_terminal:
            raise PodRejected(status)
        await self.until(lambda: len(status.containers) == len(pod.containers), timeout, "pod %s does not run" % name)
        return AllocatedPod(pod.uid, pod.name, self.container_configs(status))

    async def remove_pod(self, uid: str) -> None:
        """Remove a pod."""
        self.source.pop(uid, None)
        await self.pods.remove(uid)

    def container_configs(self, status: PodStatus) -> dict[str, cri.ContainerConfig]:
        """Maps each container's name to the CRI configuration in the MemoryRuntime."""
        assert isinstance(self.runtime, MemoryRuntime)
        return {name: self.runtime.configs[container.id] for name, container in status.containers.items()}

    async def until(self, condition: Callable[[], bool], timeout: float = _TIMEOUT, otherwise: str = "") -> None:
        """Wait for a condition. Raises AssertionError with the message ``otherwise`` after ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(otherwise or "the condition was not met in %g s" % timeout)
            await asyncio.sleep(_STEP)
