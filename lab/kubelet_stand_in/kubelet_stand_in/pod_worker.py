"""Runs one admitted pod: its sandbox, its containers, their restarts, and its end."""

from __future__ import annotations

import asyncio
import os
import shutil
import time

from node_device_plugin.runtime.errors import CriError
from node_device_plugin.wire import cri_v1_pb2 as cri

from . import klog
from .allocator import AllocationError
from .container_config import CONTAINER_NAME, POD_UID, container_config, log_directory, sandbox_config
from .device_manager import DeviceManager
from .memory_runtime import Runtime
from .pods import Container, Pod

#: Seconds between a container's second and third start. The delay doubles for each later start, up to the limit.
_RESTART_DELAY = 10.0
_RESTART_DELAY_LIMIT = 300.0
#: Seconds between checks of a pod's device health, if no plugin reports a change.
_RESYNC = 60.0

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"


class ContainerState:
    """A container in its pod's status. exit_code: None while the container runs."""

    def __init__(self, identity: str, restart_count: int, exit_code: int | None) -> None:
        self.id = identity
        self.restart_count = restart_count
        self.exit_code = exit_code


class PodStatus:
    """A pod's status. reason, message: why the pod does not run; empty if unknown."""

    def __init__(self, phase: str = PENDING, reason: str = "", message: str = "") -> None:
        self.phase = phase
        self.reason = reason
        self.message = message
        self.containers: dict[str, ContainerState] = {}

    @property
    def is_terminal(self) -> bool:
        """Whether the pod will never run again."""
        return self.phase in (SUCCEEDED, FAILED)


class PodWorker:
    """Runs one pod by its manifest. logs: directory of all pods' logs. interval: seconds between two checks."""

    def __init__(self, pod: Pod, runtime: Runtime, devices: DeviceManager, logs: str, interval: float) -> None:
        self.pod = pod
        self.status = PodStatus()
        self._runtime = runtime
        self._devices = devices
        self._logs = logs
        self._interval = interval
        self._restart_at: dict[str, float] = {}
        self._health_seen = -_RESYNC

    async def run(self) -> None:
        """Run until the pod has ended or this task is cancelled. A cancellation does not end the containers."""
        while True:
            try:
                await self._sync()
                if time.monotonic() - self._health_seen > _RESYNC:
                    self._look_at_health()
                if self.status.is_terminal:
                    await self._stop_sandboxes()
                    return
            except (CriError, AllocationError, OSError) as error:
                klog.error("Error syncing pod, skipping", error, pod=self.pod.full_name, podUID=self.pod.uid)
                self.status.message = str(error)
            await asyncio.sleep(self._interval)

    async def terminate(self) -> None:
        """Stop the pod, and remove its sandboxes, containers and logs."""
        for container in await self._runtime.containers({POD_UID: self.pod.uid}):
            await self._runtime.stop_container(container.id, self.pod.grace_period)
        await self._stop_sandboxes(remove=True)
        shutil.rmtree(log_directory(self.pod, self._logs), ignore_errors=True)

    async def _sync(self) -> None:
        known = await self._look()
        if self._has_ended():
            return
        sandbox, config = await self._sandbox()
        for container in self.pod.containers:
            last = self.status.containers.get(container.name)
            runs = [c for c in known if c.labels.get(CONTAINER_NAME) == container.name and c.pod_sandbox_id == sandbox]
            if last is not None and last.exit_code is None and any(c.id == last.id for c in runs):
                continue
            if last is not None and not self._may_restart(container, last):
                continue
            await self._start(sandbox, config, container, 0 if last is None else last.restart_count + 1)
            for old in runs:
                await self._runtime.remove_container(old.id)
        await self._look()

    async def _sandbox(self) -> tuple[str, cri.PodSandboxConfig]:
        """The pod's ready sandbox, or else a new sandbox."""
        sandboxes = await self._runtime.pod_sandboxes({POD_UID: self.pod.uid})
        for sandbox in sandboxes:
            if sandbox.state == cri.SANDBOX_READY:
                return sandbox.id, sandbox_config(self.pod, self._logs, sandbox.metadata.attempt)
        self._prepare_volumes()
        attempt = max((sandbox.metadata.attempt + 1 for sandbox in sandboxes), default=0)
        config = sandbox_config(self.pod, self._logs, attempt)
        os.makedirs(config.log_directory, exist_ok=True)
        new = await self._runtime.run_pod_sandbox(config)
        for sandbox in sandboxes:
            await self._runtime.stop_pod_sandbox(sandbox.id)
            await self._runtime.remove_pod_sandbox(sandbox.id)
        return new, config

    async def _start(
        self, sandbox: str, sandbox_configuration: cri.PodSandboxConfig, container: Container, attempt: int
    ) -> None:
        if await self._runtime.image(container.image) is None:
            raise OSError("ErrImageNeverPull: Container image %r is not present" % container.image)
        held = await self._devices.allocator.before_start(self.pod.uid, container.name, container.limits)
        config = container_config(self.pod, container, held, attempt)
        os.makedirs(os.path.join(sandbox_configuration.log_directory, container.name), exist_ok=True)
        self._look_at_health()
        identity = await self._runtime.create_container(sandbox, config, sandbox_configuration)
        await self._runtime.start_container(identity)
        klog.info(2, "Started container", pod=self.pod.full_name, containerName=container.name, restartCount=attempt)
        if attempt:
            delay = min(_RESTART_DELAY * 2.0 ** (attempt - 1), _RESTART_DELAY_LIMIT)
            self._restart_at[container.name] = time.monotonic() + delay

    def _may_restart(self, container: Container, last: ContainerState) -> bool:
        policy = self.pod.restart_policy
        if last.exit_code is not None and (policy == "Never" or (policy == "OnFailure" and last.exit_code == 0)):
            return False
        return time.monotonic() >= self._restart_at.get(container.name, 0.0)

    def _has_ended(self) -> bool:
        states = [self.status.containers.get(container.name) for container in self.pod.containers]
        codes = [state.exit_code for state in states if state is not None and state.exit_code is not None]
        running = len(codes) < len(states)
        if running or self.pod.restart_policy == "Always" or (self.pod.restart_policy == "OnFailure" and any(codes)):
            return False
        self.status.phase = FAILED if any(codes) else SUCCEEDED
        return True

    async def _look(self) -> list[cri.Container]:
        """All containers of this pod, also in earlier sandboxes. The status gets the newest container of each name."""
        containers = await self._runtime.containers({POD_UID: self.pod.uid})
        for container in sorted(containers, key=lambda c: (c.metadata.attempt, c.created_at)):
            exit_code = None
            if container.state == cri.CONTAINER_EXITED:
                exit_code = (await self._runtime.container_status(container.id)).exit_code
            state = ContainerState(container.id, container.metadata.attempt, exit_code)
            self.status.containers[container.labels.get(CONTAINER_NAME, "")] = state
        if len(self.status.containers) == len(self.pod.containers):
            self.status.phase, self.status.message = RUNNING, ""
        return containers

    def _look_at_health(self) -> None:
        self._devices.health.look_at(self.pod.uid, [container.name for container in self.pod.containers])
        self._health_seen = time.monotonic()

    def _prepare_volumes(self) -> None:
        for volume in self.pod.volumes:
            if volume.type == "DirectoryOrCreate":
                os.makedirs(volume.path, exist_ok=True)
            elif volume.type and not os.path.exists(volume.path):
                raise OSError("hostPath type check failed: %s is not a %s" % (volume.path, volume.type))

    async def _stop_sandboxes(self, remove: bool = False) -> None:
        for sandbox in await self._runtime.pod_sandboxes({POD_UID: self.pod.uid}):
            await self._runtime.stop_pod_sandbox(sandbox.id)
            if remove:
                await self._runtime.remove_pod_sandbox(sandbox.id)
