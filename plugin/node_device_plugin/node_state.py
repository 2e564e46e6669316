"""What this node says of itself: the runtime of CDI, the kubelet of devices."""

from __future__ import annotations

import asyncio
import os
from typing import Any, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Tuple

from .channels import grpc
from .cri import CriClient
from .cri_errors import CriError
from .kubelet_checkpoint import read_checkpoint
from .pod_resources import Holder, PodResourcesClient, PodResourcesError
from .wire import cri_v1_pb2 as api

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


async def runtime(socket: str) -> Dict[str, Any]:
    """What the running container runtime believes, as JSON takes it. Raises CriError where it does not answer."""
    async with CriClient(socket) as cri:
        version = await cri.version()
        status = await cri.status()
        return {
            "name": version.name,
            "version": version.version,
            "cdi": {
                "enabled": status.cdi_enabled,
                "spec_dirs": None if status.cdi_spec_dirs is None else list(status.cdi_spec_dirs),
            },
            "sandbox_image": await cri.sandbox_image(),
            "conditions": {condition.type: condition.status for condition in status.conditions},
        }


async def running_containers(socket: str) -> List[Dict[str, Any]]:
    """The containers that run, each with its id and the process id of its first process. Raises CriError."""
    async with CriClient(socket) as cri:
        listed = [each.id for each in await cri.containers() if each.state == api.CONTAINER_RUNNING]
        pids = await asyncio.gather(*(_pid(cri, identity) for identity in listed))
    return [{"id": identity, "pid": pid} for identity, pid in zip(listed, pids) if pid is not None]


async def _pid(cri: CriClient, container: str) -> Optional[int]:
    try:
        return await cri.container_pid(container)
    except CriError as error:
        if error.code is grpc.StatusCode.NOT_FOUND:
            # It ended since it was listed.
            return None
        raise


async def listing(kubelet_root: str, device_plugin_dir: str) -> Optional[Listing]:
    """What the kubelet lists now; None where none answers. CheckpointError where its checkpoint cannot be read."""
    try:
        async with PodResourcesClient(os.path.join(kubelet_root, POD_RESOURCES_SOCKET)) as kubelet:
            allocatable, holders = await kubelet.allocatable(), await kubelet.holders()
    except PodResourcesError:
        return None
    checkpoint = read_checkpoint(device_plugin_dir)
    known = checkpoint.registered if checkpoint else {}
    return Listing(frozenset(known) | frozenset(allocatable), allocatable, holders)


async def holders(kubelet_root: str, device_plugin_dir: str) -> Dict[str, Any]:
    """Who holds which device, as JSON takes it.

    While no kubelet answers, its checkpoint does: it knows pods by their uid alone.
    """
    listed = await listing(kubelet_root, device_plugin_dir)
    if listed is not None:
        held = [
            _held(holder.resource, device, holder.namespace, holder.pod, holder.container)
            for holder in listed.holders
            for device in holder.device_ids
        ]
        return {"source": "kubelet", "held": held, "allocatable": listed.allocatable}
    checkpoint = read_checkpoint(device_plugin_dir)
    if checkpoint is None:
        return {"source": "none", "held": [], "allocatable": {}}
    held = [
        _held(entry.resource, device, "", entry.pod_uid, entry.container)
        for entry in checkpoint.pod_devices
        for device in entry.device_ids
    ]
    return {"source": "checkpoint", "held": held, "allocatable": checkpoint.registered}


def _held(resource: str, device: str, namespace: str, pod: str, container: str) -> Dict[str, str]:
    return {"resource": resource, "device": device, "namespace": namespace, "pod": pod, "container": container}
