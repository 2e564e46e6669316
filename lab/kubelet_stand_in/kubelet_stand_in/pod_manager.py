"""The pods of the stand-in: admission one at a time, a worker for each, and the end of sandboxes that nobody knows."""

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
    """Every pod that this kubelet was told of. logs: folder of the pods' logs. interval: seconds between looks."""

    def __init__(self, runtime: Runtime, logs: str, interval: float) -> None:
        self._runtime = runtime
        self._logs = logs
        self._interval = interval
        self._known: dict[str, _Known] = {}
        self._running_at_start: set[tuple[str, str]] = set()
        # The kubelet's sync loop takes one pod after the other: a plugin that hangs in Allocate stops it.
        self._admission = asyncio.Lock()

    async def start(self, devices: DeviceManager, pods: Iterable[Pod]) -> None:
        """Take over the pods that are there when the kubelet starts; what runs of them goes on running."""
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
        """Forget all pods, as the death of a kubelet does; their containers run on."""
        tasks = [known.task for known in self._known.values() if known.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._known.clear()

    def was_running(self, pod_uid: str, container: str) -> bool:
        """Whether a container ran already when this kubelet started."""
        return (pod_uid, container) in self._running_at_start

    def pods(self) -> list[tuple[Pod, PodStatus]]:
        """Every pod with its status, the rejected ones as well."""
        return [(known.pod, known.status) for known in self._known.values()]

    def active(self) -> list[Pod]:
        """The pods that were admitted and have not ended."""
        return [known.pod for known in self._known.values() if known.worker and not known.status.is_terminal]

    async def add(self, pod: Pod) -> PodStatus:
        """Admit a pod and let it run, or reject it for good."""
        async with self._admission:
            # A pod counts as active while it is admitted: its devices are not freed in the middle.
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
        """End a pod, and remove what it had."""
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
            # Nobody knows its sandbox any more: it goes with the strangers.
            klog.error("Failed killing pod", error, pod=known.pod.full_name)
        finally:
            self._known.pop(pod_uid, None)

    async def remove_unknown_pods(self) -> None:
        """Stop and remove every sandbox that belongs to no pod which may run, whoever made it."""
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
