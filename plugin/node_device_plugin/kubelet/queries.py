"""Questions to the kubelet: which devices it lists, and who holds them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import Any, Collection, Dict, FrozenSet, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from google.protobuf.message import DecodeError

from ..cdi import writer
from ..cdi.directories import DEFAULT_DIRECTORIES
from ..declaration.model import devices_behind
from ..devices.holdings import Holding
from ..wire import device_plugin_v1beta1_pb2 as api
from .checkpoint import Checkpoint, CheckpointError, read_checkpoint
from .pod_resources import Holder, PodResourcesClient, PodResourcesError, Pods

log = logging.getLogger(__name__)

POD_RESOURCES_SOCKET = os.path.join("pod-resources", "kubelet.sock")


class Listing(NamedTuple):
    """What a running kubelet lists.

    registered: every resource that its device manager knows, those without a device too.
    allocatable: resource to the ids of its healthy devices. holders: who holds which. pods: how many there are.
    """

    registered: FrozenSet[str]
    allocatable: Mapping[str, Tuple[str, ...]]
    holders: List[Holder]
    pods: int

    def held(self, resource: str) -> Dict[str, str]:
        """Ids of a resource that are held, each with ``namespace/pod``."""
        return {
            device: "%s/%s" % (holder.namespace, holder.pod)
            for holder in self.holders
            if holder.resource == resource
            for device in holder.device_ids
        }


async def listing(kubelet_root: str, device_plugin_dir: str) -> Listing:
    """What the kubelet lists now.

    Raises PodResourcesError where none answers, CheckpointError where its checkpoint cannot be read.
    """
    allocatable, pods = await _listed(kubelet_root)
    checkpoint = read_checkpoint(device_plugin_dir)
    known = checkpoint.registered if checkpoint else {}
    return Listing(frozenset(known) | frozenset(allocatable), allocatable, pods.holders, pods.number)


async def _listed(kubelet_root: str) -> Tuple[Mapping[str, Tuple[str, ...]], Pods]:
    async with PodResourcesClient(os.path.join(kubelet_root, POD_RESOURCES_SOCKET)) as kubelet:
        return await kubelet.allocatable(), await kubelet.pods()


async def holders(
    kubelet_root: str, device_plugin_dir: str, spec_dirs: Sequence[str] = DEFAULT_DIRECTORIES
) -> Dict[str, Any]:
    """Who holds which device, as JSON takes it.

    While no kubelet answers, its checkpoint does: it knows pods by their uid alone. ``unanswered`` is then where the
    kubelet was asked, and why that failed: it tells one that hangs from one that is not there. Of each device
    ``host_paths`` are what its container was given of the host for it: by the Allocate answer that the kubelet keeps,
    and what the specs of ours in spec_dirs say now of the CDI names in it. ``by_our_cdi`` is whether one is in them.
    """
    try:
        allocatable, pods = await _listed(kubelet_root)
    except PodResourcesError as error:
        unanswered = "%s: %s: %s" % (error.socket, error.code.name, error.details)
    else:
        try:
            given = await asyncio.to_thread(_Given.read, device_plugin_dir, spec_dirs)
        except (CheckpointError, OSError) as error:
            log.warning("what containers were given for their devices is not known: %s", error)
            given = _Given(None, {})
        held = [
            given.held(holder.resource, device, holder.namespace, holder.pod, holder.container)
            for holder in pods.holders
            for device in holder.device_ids
        ]
        return {"source": "kubelet", "held": held, "allocatable": allocatable, "unanswered": None}
    return await checkpointed_holders(device_plugin_dir, spec_dirs, unanswered)


async def checkpointed_holders(device_plugin_dir: str, spec_dirs: Sequence[str], unanswered: str) -> Dict[str, Any]:
    """What ``holders`` answers while the kubelet does not."""
    checkpoint = read_checkpoint(device_plugin_dir)
    if checkpoint is None:
        return {"source": "none", "held": [], "allocatable": {}, "unanswered": unanswered}
    given = await asyncio.to_thread(_Given.read, device_plugin_dir, spec_dirs)
    held = [
        given.held(entry.resource, device, "", entry.pod_uid, entry.container)
        for entry in checkpoint.pod_devices
        for device in entry.device_ids
    ]
    return {"source": "checkpoint", "held": held, "allocatable": checkpoint.registered, "unanswered": unanswered}


def holdings(state: Mapping[str, Any], own: Collection[str]) -> List[Holding]:
    """What ``holders`` answers, as what devices are compared with; without what other plugins offer now.

    own: resources that are ours, or were. What nobody offers may have been ours, too, and shared or not.
    """
    offered = state["allocatable"] if state["source"] == "kubelet" else ()
    found = []
    for held in state["held"]:
        is_ours = held["resource"] in own or held["by_our_cdi"]
        if is_ours or held["resource"] not in offered:
            found.append(
                Holding(
                    "%(namespace)s/%(pod)s" % held if held["namespace"] else "pod %(pod)s" % held,
                    held["resource"],
                    held["device"],
                    frozenset(held["host_paths"]),
                    is_share=not is_ours or len(devices_behind(held["device"])) > 1,
                    is_ours=is_ours,
                )
            )
    return found


class _Given:
    """What containers were given for their devices, by the kubelet's checkpoint and our CDI specs as they are now."""

    def __init__(self, checkpoint: Optional[Checkpoint], by_cdi: Mapping[str, FrozenSet[str]]) -> None:
        self._by_cdi = by_cdi
        #: An id of a resource is in one container at a time; one of a pod that has ended may still stand before it.
        self._answers: Dict[Tuple[str, str, str], api.ContainerAllocateResponse] = {}
        for entry in checkpoint.pod_devices if checkpoint else ():
            with contextlib.suppress(DecodeError):
                answer = api.ContainerAllocateResponse.FromString(entry.allocate_response)
                for device in entry.device_ids:
                    self._answers[entry.container, entry.resource, device] = answer

    @classmethod
    def read(cls, device_plugin_dir: str, spec_dirs: Sequence[str]) -> _Given:
        """It reads files: not for the event loop. Raises CheckpointError and OSError."""
        return cls(read_checkpoint(device_plugin_dir), writer.host_paths(spec_dirs))

    def held(self, resource: str, device: str, namespace: str, pod: str, container: str) -> Dict[str, Any]:
        """A device that a container holds."""
        answer = self._answers.get((container, resource, device), api.ContainerAllocateResponse())
        names = [each.name for each in answer.cdi_devices if each.name in self._by_cdi]
        # The answer is for all devices that the container has of the resource.
        of_device = [name for name in names if name.partition("=")[2] in devices_behind(device)] or names
        paths = {path for name in of_device for path in self._by_cdi[name]}
        paths.update(os.path.realpath(node.host_path) for node in answer.devices)
        paths.update(mount.host_path for mount in answer.mounts)
        return {
            "resource": resource,
            "device": device,
            "namespace": namespace,
            "pod": pod,
            "container": container,
            "host_paths": sorted(paths),
            "by_our_cdi": bool(names),
        }
