"""Writes and reads the device checkpoint in the kubelet's format, with the same JSON and the same checksum.

A real kubelet accepts the stand-in's file, and the stand-in accepts a kubelet's file. The checksum is FNV-1a (32 bits)
over Go's spew rendering (``%#v``) of the data (pkg/util/hash and pkg/kubelet/checkpointmanager/checksum).
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from node_device_plugin.kubelet.checkpoint import FILE_NAME

#: The NUMA node of a device without NUMA information.
NO_NUMA_NODE = -1


class CorruptCheckpoint(ValueError):
    """The file is not a checkpoint, or its checksum is wrong."""


class Entry(NamedTuple):
    """The devices of one resource in one container. device_ids: by NUMA node. allocate_response: serialised."""

    pod_uid: str
    container: str
    resource: str
    device_ids: Mapping[int, Sequence[str]]
    allocate_response: bytes


class CheckpointData(NamedTuple):
    """The content of a checkpoint. registered: maps each resource to its healthy devices, unordered."""

    entries: list[Entry]
    registered: dict[str, list[str]]


def write(directory: str, data: CheckpointData) -> None:
    """Replace the checkpoint in ``directory`` atomically.

    Unlike the kubelet, this function does not sync the file to disk, because no test needs to survive a power failure.
    """
    document = {
        "Data": {
            "PodDeviceEntries": [
                {
                    "PodUID": entry.pod_uid,
                    "ContainerName": entry.container,
                    "ResourceName": entry.resource,
                    "DeviceIDs": {str(node): list(ids) for node, ids in entry.device_ids.items()},
                    "AllocResp": base64.b64encode(entry.allocate_response).decode(),
                }
                for entry in data.entries
            ]
            or None,
            "RegisteredDevices": data.registered,
        },
        "Checksum": _checksum(data),
    }
    path = os.path.join(directory, FILE_NAME)
    # Use a dotfile, because readers of this directory skip dotfiles, including the check whether the node is new.
    temporary = os.path.join(directory, ".%s" % os.getpid())
    with open(temporary, "w") as file:
        json.dump(document, file, separators=(",", ":"))
    os.chmod(temporary, 0o600)
    os.replace(temporary, path)


def read(directory: str) -> CheckpointData | None:
    """The checkpoint in ``directory``; None if there is none. Raises CorruptCheckpoint."""
    try:
        with open(os.path.join(directory, FILE_NAME), "rb") as file:
            document = json.load(file)
        content = document["Data"]
        entries = [_entry(entry) for entry in content["PodDeviceEntries"] or ()]
        data = CheckpointData(entries, {name: list(ids or ()) for name, ids in content["RegisteredDevices"].items()})
        expected = document["Checksum"]
    except FileNotFoundError:
        return None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise CorruptCheckpoint("unexpected form: %r" % error) from error
    if _checksum(data) != expected:
        raise CorruptCheckpoint("checkpoint is corrupted")
    return data


def _entry(entry: Mapping[str, Any]) -> Entry:
    return Entry(
        entry["PodUID"],
        entry["ContainerName"],
        entry["ResourceName"],
        {int(node): ids for node, ids in (entry["DeviceIDs"] or {}).items()},
        base64.b64decode(entry["AllocResp"] or ""),
    )


def _checksum(data: CheckpointData) -> int:
    value = 0x811C9DC5
    for byte in _rendering(data).encode():
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return value


def _rendering(data: CheckpointData) -> str:
    entries = " ".join(
        "{PodUID:(string)%s ContainerName:(string)%s ResourceName:(string)%s "
        "DeviceIDs:(checkpoint.DevicesPerNUMA)%s AllocResp:([]uint8)[%s]}"
        % (
            entry.pod_uid,
            entry.container,
            entry.resource,
            _map(entry.device_ids),
            " ".join(map(str, entry.allocate_response)),
        )
        for entry in data.entries
    )
    return (
        "(checkpoint.checkpointData){PodDeviceEntries:([]checkpoint.PodDevicesEntry)%s "
        "RegisteredDevices:(map[string][]string)%s}"
    ) % ("[%s]" % entries if data.entries else "<nil>", _map(data.registered))


def _map(lists: Mapping[Any, Sequence[str]]) -> str:
    return "map[%s]" % " ".join("%s:[%s]" % (key, " ".join(lists[key])) for key in sorted(lists))
