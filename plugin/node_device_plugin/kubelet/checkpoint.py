"""The kubelet's device checkpoint, read without the kubelet: which resources it knows, and which pod holds what.

It is the one place that shows a resource without devices, which PodResources leaves out. Form as in
pkg/kubelet/cm/devicemanager/checkpoint of Kubernetes (since 1.20: device ids by NUMA node).
"""

from __future__ import annotations

import base64
import json
import os
from typing import Any, NamedTuple

#: Its name in the kubelet's device plugin directory.
FILE_NAME = "kubelet_internal_checkpoint"


class CheckpointError(ValueError):
    """The file is there, but is no checkpoint of a known form."""


class PodDevices(NamedTuple):
    """The devices of one resource in one container, and the Allocate answer that is replayed when it restarts.

    allocate_response: a serialised ContainerAllocateResponse.
    """

    pod_uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]
    allocate_response: bytes


class Checkpoint(NamedTuple):
    """What the kubelet wrote last.

    registered: every resource that it knows to its healthy devices, sorted. Right after the kubelet's start these are
    still the devices of its former life, until the plugin is back.
    """

    registered: dict[str, tuple[str, ...]]
    pod_devices: tuple[PodDevices, ...]


def read_checkpoint(directory: str) -> Checkpoint | None:
    """The checkpoint in the device plugin ``directory``; None where no plugin has registered there yet.

    Raises CheckpointError, and OSError where the file may not be read.
    """
    path = os.path.join(directory, FILE_NAME)
    try:
        with open(path, "rb") as file:
            content = file.read()
    except FileNotFoundError:
        return None
    try:
        data = json.loads(content)["Data"]
        registered = data["RegisteredDevices"] or {}
        return Checkpoint(
            {str(resource): tuple(sorted(devices or ())) for resource, devices in registered.items()},
            tuple(_pod_devices(entry) for entry in data["PodDeviceEntries"] or ()),
        )
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is no device checkpoint of a known form: {error!r}") from error


def _pod_devices(entry: Any) -> PodDevices:
    by_numa_node = entry["DeviceIDs"] or {}
    return PodDevices(
        pod_uid=entry["PodUID"],
        container=entry["ContainerName"],
        resource=entry["ResourceName"],
        # A device that is near to two NUMA nodes stands in both lists.
        device_ids=tuple(sorted({device for devices in by_numa_node.values() for device in devices})),
        allocate_response=base64.b64decode(entry["AllocResp"] or ""),
    )
