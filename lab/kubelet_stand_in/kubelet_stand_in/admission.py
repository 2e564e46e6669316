"""Admits or rejects a pod: allocates its devices, then checks the node's resource counts. A rejection is final.

The two steps follow the topology manager (scope "none") and lifecycle/predicate.go of kubelet 1.36.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from . import klog
from .allocator import AllocationError
from .device_manager import DeviceManager
from .pods import Pod


class Rejection(NamedTuple):
    """The reason and message of a rejection, as in the pod's status."""

    reason: str
    message: str


async def admit(pod: Pod, others: Iterable[Pod], devices: DeviceManager) -> Rejection | None:
    """Allocate a pod's devices, and check that the pod fits beside the active ``others``. Returns None if admitted."""
    rejection = await _allocated(pod, devices) or _fits(pod, others, devices)
    if rejection is not None:
        klog.info(
            0,
            "Pod admission denied",
            podUID=pod.uid,
            pod=pod.full_name,
            reason=rejection.reason,
            message=rejection.message,
        )
    return rejection


async def _allocated(pod: Pod, devices: DeviceManager) -> Rejection | None:
    try:
        for container in pod.containers:
            await devices.allocator.allocate(pod.uid, container.name, container.limits)
    except AllocationError as error:
        return Rejection("UnexpectedAdmissionError", "Allocate failed due to %s, which is unexpected" % error)
    return None


def _fits(pod: Pod, others: Iterable[Pod], devices: DeviceManager) -> Rejection | None:
    capacity = devices.capacity()
    for resource, count in sorted(capacity.capacity.items()):
        klog.info(2, "Updated capacity for device plugin", plugin=resource, capacity=count)
    allocatable = {**dict.fromkeys(capacity.removed, 0), **capacity.allocatable}
    if pod.uid in devices.state.pods():
        # A device that a pod holds counts as present, even if the plugin no longer lists the device.
        for resource, ids in devices.state.allocated.items():
            allocatable[resource] = max(allocatable.get(resource, 0), len(ids))
    used: dict[str, int] = {}
    for other in others:
        for resource, count in other.requests().items():
            used[resource] = used.get(resource, 0) + count
    lacking = {
        resource: count - (allocatable[resource] - used.get(resource, 0))
        for resource, count in sorted(pod.requests().items())
        # The kubelet ignores a resource that the node never had, and runs the pod without the resource's devices.
        if resource in allocatable and count > allocatable[resource] - used.get(resource, 0)
    }
    if not lacking:
        return None
    # All pods here are static pods, and the kubelet never preempts a static pod.
    return Rejection(
        "UnexpectedAdmissionError",
        "Unexpected error while attempting to recover from admission failure: preemption: error finding a set of pods "
        "to preempt: no set of running pods found to reclaim resources: [%s]"
        % "".join("(res: %s, q: %d), " % item for item in lacking.items()),
    )
