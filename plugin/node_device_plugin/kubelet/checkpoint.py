"""Reads resources and the devices of each pod from the kubelet's checkpoint, without the kubelet.

Only the checkpoint shows a resource without devices; PodResources omits such a resource. Source of
the checkpoint's format: pkg/kubelet/cm/devicemanager/checkpoint in Kubernetes (since 1.20: device
ids by NUMA node).
"""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from ..support import bounded_reads

#: The checkpoint's name in the kubelet's device plugin directory.
FILE_NAME = "kubelet_internal_checkpoint"


class CheckpointError(ValueError):
    """The file exists but is not a checkpoint in a known format."""


class PodDevices(NamedTuple):
    """The devices of one resource in one container.

    allocate_response: a serialised ContainerAllocateResponse, which the kubelet replays
    at a restart.
    """

    pod_uid: str
    container: str
    resource: str
    device_ids: tuple[str, ...]
    allocate_response: bytes


class Checkpoint(NamedTuple):
    """The last checkpoint that the kubelet wrote.

    registered: each known resource with its healthy devices, sorted. After a kubelet restart, the
    devices from before the restart stay until the plugin registers again.
    """

    registered: dict[str, tuple[str, ...]]
    pod_devices: tuple[PodDevices, ...]


def read_checkpoint(directory: str) -> Checkpoint | None:
    """The checkpoint in the device plugin ``directory``; None if no plugin has registered there yet.

    Raises CheckpointError if the format is unknown, and OSError if the file cannot be read.
    """
    content = _content(directory)
    if content is None:
        return None
    with _known_format(directory):
        data = bounded_reads.json_of(content)["Data"]
        return Checkpoint(_registered(data), tuple(_pod_devices(entry) for entry in data["PodDeviceEntries"] or ()))


def read_registered(directory: str) -> dict[str, tuple[str, ...]]:
    """The checkpoint's ``registered`` alone; empty without a file. Raises as read_checkpoint."""
    return registered_in(_content(directory), directory)


def registered_in(content: bytes | None, directory: str) -> dict[str, tuple[str, ...]]:
    """The ``registered`` of a checkpoint with this content. content: empty or None without a file."""
    if not content:
        return {}
    with _known_format(directory):
        return _registered(bounded_reads.json_of(content)["Data"])


def _content(directory: str) -> bytes | None:
    with contextlib.suppress(FileNotFoundError):
        # Pods that mount the directory, as device plugins do, can replace the file.
        return bounded_reads.read_file(os.path.join(directory, FILE_NAME), follow=False)
    return None


@contextlib.contextmanager
def _known_format(directory: str) -> Iterator[None]:
    try:
        yield
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(damaged(os.path.join(directory, FILE_NAME), error)) from error


def _registered(data: Any) -> dict[str, tuple[str, ...]]:
    return {name: tuple(sorted(_texts(devices))) for name, devices in (data["RegisteredDevices"] or {}).items()}


def damaged(path: str, error: Exception) -> str:
    """The message for a file that is no checkpoint.

    The kubelet keeps what it allocated in memory, and writes the file at each device list of a plugin
    (genericDeviceUpdateCallback in pkg/kubelet/cm/devicemanager).
    """
    return (
        f"{path} is not a device checkpoint in a known format ({error!r}). To let the running kubelet write it again, "
        "run systemctl restart node-device-plugin; if this node no longer has a kubelet, remove the file"
    )


def _pod_devices(entry: Any) -> PodDevices:
    by_numa_node = entry["DeviceIDs"] or {}
    return PodDevices(
        pod_uid=_text(entry["PodUID"]),
        container=_text(entry["ContainerName"]),
        resource=_text(entry["ResourceName"]),
        # A device with two NUMA nodes is in both lists.
        device_ids=tuple(sorted({device for devices in by_numa_node.values() for device in _texts(devices)})),
        allocate_response=base64.b64decode(entry["AllocResp"] or ""),
    )


def _texts(value: Any) -> list[str]:
    if not (value is None or isinstance(value, list)):
        raise TypeError(f"a list is a {type(value).__name__}")
    return [_text(each) for each in value or ()]


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text is a {type(value).__name__}")
    return value
