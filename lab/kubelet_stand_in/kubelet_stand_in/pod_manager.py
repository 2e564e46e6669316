"""The stand-in's pods. Admits one pod at a time, runs a worker for each pod, and removes unknown sandboxes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from node_device_plugin.runtime.errors import CriError
from node_device_plugin.wire import cri_v1_pb2 as cri

from . import klog
from .admission import admit
from .container_config import CONTAINER_NAME, POD_UID
from .device_manager import DeviceManager
from .memory_runtime import Runtime
from .pod_worker import FAILED, PodStatus, PodWorker
from .pods import Pod


class _Known(NamedTuple):
    pod: Pod
    worker: PodWorker | None
    task: asyncio.Task[None] | None
    status: PodStatus


class PodManager:
    """All pods of this kubelet. logs: directory of the pods' logs. interval: seconds between a worker's checks."""

    def __init__(self, runtime: Runtime, logs: str, interval: float) -> None:
        self._runtime = runtime
        self._logs = logs
        self._interval = interval
        self._known: dict[str, _Known] = {}
        self._running_at_start: set[tuple[str, str]] = set()
        # The kubelet's sync loop handles one pod at a time, so a plugin that hangs in Allocate blocks the loop.
        self._admission = asyncio.Lock()

    async def start(self, devices: DeviceManager, pods: Iterable[Pod]) -> None:
        """Adopt the pods that exist when the kubelet starts. Their containers keep running."""
        self._devices = devices
        self._running_at_start = {
            (container.labels.get(POD_UID, ""), container.labels.get(CONTAINER_NAME, ""))
            for container in await self._runtime.containers()
            if container.state == cri.CONTAINER_RUNNING
        }
        devices.allocator.sources_ready = False
        for pod in pods:
            await self.add(pod)
        devices.allocator.sources_ready = True

    async def stop(self) -> None:
        """Forget all pods, as a dying kubelet does. Their containers keep running."""
        tasks = [known.task for known in self._known.values() if known.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._known.clear()

    def was_running(self, pod_uid: str, container: str) -> bool:
        """Whether a container already ran when this kubelet started."""
        return (pod_uid, container) in self._running_at_start

    def pods(self) -> list[tuple[Pod, PodStatus]]:
        """Every pod with its status, including rejected pods."""
        return [(known.pod, known.status) for known in self._known.values()]

    def active(self) -> list[Pod]:
        """The pods that were admitted and have not ended."""
        return [known.pod for known in self._known.values() if known.worker and not known.status.is_terminal]

    async def add(self, pod: Pod) -> PodStatus:
        """Admit and run a pod, or reject it permanently."""
        async with self._admission:
            # A pod counts as active during its admission, so its devices are not freed meanwhile.
            worker = PodWorker(pod, self._runtime, self._devices, self._logs, self._interval)
            self._known[pod.uid] = _Known(pod, worker, None, worker.status)
            others = [other for other in self.active() if other.uid != pod.uid]
            rejection = await admit(pod, others, self._devices)
            if rejection is not None:
                status = PodStatus(FAILED, rejection.reason, "Pod was rejected: " + rejection.message)
                self._known[pod.uid] = _Known(pod, None, None, status)
            else:
                status = worker.status
                task = asyncio.ensure_future(worker.run())
                self._known[pod.uid] = _Known(pod, worker, task, status)
        return status

    async def remove(self, pod_uid: str) -> None:
        """End a pod, and remove its sandbox, containers and logs."""
        known = self._known.get(pod_uid)
        if known is None:
            return
        if known.task is not None:
            known.task.cancel()
            await asyncio.gather(known.task, return_exceptions=True)
        try:
            if known.worker is not None:
                await known.worker.terminate()
        except CriError as error:
            # The sandbox is now unknown, so remove_unknown_pods removes it.
            klog.error("Failed killing pod", error, pod=known.pod.full_name)
        finally:
            self._known.pop(pod_uid, None)

    async def remove_unknown_pods(self) -> None:
        """Stop and remove every sandbox without an admitted pod, whoever created it."""
        known = {uid for uid, pod in self._known.items() if pod.worker is not None}
        try:
            for sandbox in await self._runtime.pod_sandboxes():
                uid = sandbox.labels.get(POD_UID, "")
                if uid not in known:
                    klog.info(2, "Killing unwanted pod", sandbox=sandbox.id, podUID=uid)
                    await self._runtime.stop_pod_sandbox(sandbox.id)
                    await self._runtime.remove_pod_sandbox(sandbox.id)
        except CriError as error:
            klog.error("Failed killing unwanted pods", error)
