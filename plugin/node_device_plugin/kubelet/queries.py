"""Questions to the kubelet: which devices it lists, and who holds them."""

from __future__ import annotations

import os
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

from .checkpoint import read_checkpoint
from .pod_resources import Holder, PodResourcesClient, PodResourcesError

POD_RESOURCES_SOCKET = os.path.join("pod-resources", "kubelet.sock")


class Listing(NamedTuple):
    """What a running kubelet lists.

    registered: every resource that its device manager knows, those without a device too.
    allocatable: resource to the ids of its healthy devices. holders: who holds which.
    """

    registered: FrozenSet[str]
    allocatable: Mapping[str, Tuple[str, ...]]
    holders: List[Holder]

    def held(self, resource: str) -> Dict[str, str]:
        """Ids of a resource that are held, each with ``namespace/pod``."""
        return {
            device: "%s/%s" % (holder.namespace, holder.pod)
            for holder in self.holders
            if holder.resource == resource
            for device in holder.device_ids
        }


async def listing(kubelet_root: str, device_plugin_dir: str) -> Optional[Listing]:
    """What the kubelet lists now; None where none answers. CheckpointError where its checkpoint cannot be read."""
    try:
        return await _listing(kubelet_root, device_plugin_dir)
    except PodResourcesError:
        return None


async def _listing(kubelet_root: str, device_plugin_dir: str) -> Listing:
    async with PodResourcesClient(os.path.join(kubelet_root, POD_RESOURCES_SOCKET)) as kubelet:
        allocatable, holders = await kubelet.allocatable(), await kubelet.holders()
    checkpoint = read_checkpoint(device_plugin_dir)
    known = checkpoint.registered if checkpoint else {}
    return Listing(frozenset(known) | frozenset(allocatable), allocatable, holders)


async def holders(kubelet_root: str, device_plugin_dir: str) -> Dict[str, Any]:
    """Who holds which device, as JSON takes it.

    While no kubelet answers, its checkpoint does: it knows pods by their uid alone. ``unanswered`` is then where the
    kubelet was asked, and why that failed: it tells one that hangs from one that is not there.
    """
    try:
        listed = await _listing(kubelet_root, device_plugin_dir)
    except PodResourcesError as error:
        unanswered = "%s: %s: %s" % (error.socket, error.code.name, error.details)
    else:
        held = [
            _held(holder.resource, device, holder.namespace, holder.pod, holder.container)
            for holder in listed.holders
            for device in holder.device_ids
        ]
        return {"source": "kubelet", "held": held, "allocatable": listed.allocatable, "unanswered": None}
    checkpoint = read_checkpoint(device_plugin_dir)
    if checkpoint is None:
        return {"source": "none", "held": [], "allocatable": {}, "unanswered": unanswered}
    held = [
        _held(entry.resource, device, "", entry.pod_uid, entry.container)
        for entry in checkpoint.pod_devices
        for device in entry.device_ids
    ]
    return {"source": "checkpoint", "held": held, "allocatable": checkpoint.registered, "unanswered": unanswered}


def _held(resource: str, device: str, namespace: str, pod: str, container: str) -> Dict[str, str]:
    return {"resource": resource, "device": device, "namespace": namespace, "pod": pod, "container": container}
