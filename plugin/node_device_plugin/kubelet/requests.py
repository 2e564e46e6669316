"""Finds running containers that request a device and hold none.

The kubelet starts such a container if it admits the pod again without its checkpoint of devices, for example after
somebody deleted the file. Requests are in pod specs alone, so this module reads the copy that the kubelet keeps of them
for in-place resizes (``allocated_pods_state``, pkg/kubelet/allocation/state in Kubernetes). A kubelet before 1.33 keeps
no copy.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Any

from ..runtime.client import CriClient
from ..runtime.errors import CriError
from ..support import bounded_reads
from ..support.bounded_calls import BoundedCalls, NoAnswer
from ..wire.cri_v1_pb2 import CONTAINER_RUNNING
from .losses import Loss
from .queries import Holders

FILE_NAME = "allocated_pods_state"
_NOTHING = frozenset({"", "0"})


async def unserved(kubelet_root: str, runtime_socket: str, holders: Holders, resources: Collection[str]) -> list[Loss]:
    """A loss for each running container that requests one of these resources and holds none of it, sorted.

    Empty if the kubelet keeps no requests, or if the kubelet or the runtime does not answer. Doctor reports such
    programs.
    """
    if holders.source != "kubelet" or not resources:
        return []
    try:
        wanted = await BoundedCalls().ask(requested, kubelet_root, frozenset(resources))
        if not wanted:
            return []
        async with CriClient(runtime_socket) as cri:
            running = [each for each in await cri.containers() if each.state == CONTAINER_RUNNING]
    except (CriError, NoAnswer):
        return []
    holding = {(held.resource, held.namespace, held.pod, held.container) for held in holders.held}
    found = set()
    for each in running:
        uid, namespace, pod, container = (
            each.labels.get("io.kubernetes." + label, "")
            for label in ("pod.uid", "pod.namespace", "pod.name", "container.name")
        )
        # The kubelet lists neither ended pods nor init containers, whose devices later containers get.
        if (namespace, pod, container) not in holders.containers:
            continue
        for resource, number in wanted.get((uid, container), {}).items():
            if (resource, namespace, pod, container) not in holding:
                text = (
                    f"{namespace}/{pod} runs without a device: its container {container} requests {number}, but the "
                    "kubelet gave it none (for example, its checkpoint was deleted): create the pod again"
                )
                found.add(Loss(resource, "", text))
    return sorted(found)


def requested(kubelet_root: str, resources: Collection[str]) -> dict[tuple[str, str], dict[str, str]]:
    """By pod uid and container, the requested number of each of these resources; empty without a readable file."""
    try:
        content = bounded_reads.read_file(os.path.join(kubelet_root, FILE_NAME))
        data = bounded_reads.json_of(content)["data"].encode()
        entries = bounded_reads.json_of(data).get("entries") or {}
        found = {
            (str(uid), str(container)): _numbers(wanted, resources)
            for uid, pod in entries.items()
            for container, wanted in (pod.get("ContainerResources") or {}).items()
        }
    except (OSError, AttributeError, KeyError, TypeError, ValueError):
        return {}
    return {key: numbers for key, numbers in found.items() if numbers}


def _numbers(wanted: Mapping[str, Any], resources: Collection[str]) -> dict[str, str]:
    # For an extended resource, request and limit are equal (API validation), and one of them may be left out.
    both = {**(wanted.get("limits") or {}), **(wanted.get("requests") or {})}
    return {name: str(both[name]) for name in resources if str(both.get(name, "")) not in _NOTHING}
