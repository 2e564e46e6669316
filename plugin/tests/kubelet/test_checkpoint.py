"""What a container holds, by the kubelet's checkpoint."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.kubelet.checkpoint import (
    FILE_NAME,
    CheckpointError,
    read_checkpoint,
    read_registered,
    registered_in,
)


def test_a_container_holds_what_it_has_of_every_numa_node(tmp_path: Path) -> None:
    entry = {
        "PodUID": "u",
        "ContainerName": "c",
        "ResourceName": "example.com/dev",
        "DeviceIDs": {"0": ["near"], "1": ["between", "far"], "2": ["between"]},
        "AllocResp": None,
    }
    data = {"Data": {"PodDeviceEntries": [entry], "RegisteredDevices": None}}
    (tmp_path / FILE_NAME).write_text(json.dumps(data))
    found = read_checkpoint(str(tmp_path))
    assert found is not None
    (held,) = found.pod_devices
    assert (held.device_ids, held.allocate_response) == (("between", "far", "near"), b"")


@pytest.mark.parametrize("kind", ["fifo", "zero", "link", "directory"])
def test_what_a_pod_puts_in_the_checkpoints_place_is_not_opened(tmp_path: Path, kind: str) -> None:
    path = tmp_path / FILE_NAME
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "zero" else "/etc/shadow")
    with pytest.raises(OSError, match="is not a regular file"):
        read_checkpoint(str(tmp_path))


ENTRY = {"PodUID": "u", "ContainerName": "c", "ResourceName": "r", "DeviceIDs": {"0": ["d"]}, "AllocResp": ""}


@pytest.mark.parametrize(
    "data",
    [
        {"RegisteredDevices": {"r": [1]}, "PodDeviceEntries": []},
        {"RegisteredDevices": {"r": "d"}, "PodDeviceEntries": {}},
        {"RegisteredDevices": [], "PodDeviceEntries": [7]},
        *({"RegisteredDevices": {}, "PodDeviceEntries": [{**ENTRY, key: 7}]} for key in ENTRY),
        {"RegisteredDevices": {}, "PodDeviceEntries": [{**ENTRY, "DeviceIDs": {"0": [None]}}]},
        {"RegisteredDevices": {}, "PodDeviceEntries": [{**ENTRY, "ResourceName": ["r"]}]},
    ],
)
def test_a_checkpoint_with_other_types_is_damaged(tmp_path: Path, data: "dict[str, Any]") -> None:
    (tmp_path / FILE_NAME).write_text(json.dumps({"Data": data}))
    with pytest.raises(CheckpointError, match="is not a device checkpoint in a known format"):
        read_checkpoint(str(tmp_path))


def test_a_checkpoint_that_is_deep_or_endless_in_numbers_is_damaged(tmp_path: Path) -> None:
    for content in ('{"Data": ' + "[" * 100_000, '{"Data": ' + "9" * 1000 + "}", '{"Data": [' + "0," * 2_000_001):
        (tmp_path / FILE_NAME).write_text(content)
        with pytest.raises(CheckpointError):
            read_checkpoint(str(tmp_path))


def test_what_is_registered_is_read_whatever_else_the_file_has(tmp_path: Path) -> None:
    assert read_registered(str(tmp_path)) == registered_in(b"", str(tmp_path)) == {}
    file = tmp_path / FILE_NAME
    file.write_text('{"Data": {"RegisteredDevices": {"a.example/b": ["y", "x"], "a.example/c": null}}}')
    assert read_registered(str(tmp_path)) == {"a.example/b": ("x", "y"), "a.example/c": ()}
    file.write_text('{"Data": {"RegisteredDevices": null}}')
    assert read_registered(str(tmp_path)) == {}
    for damaged in ("{", "[]", '{"Data": {}}', '{"Data": {"RegisteredDevices": {"a.example/b": [1]}}}'):
        file.write_text(damaged)
        with pytest.raises(CheckpointError, match=f"{file} is not a device checkpoint in a known format"):
            read_registered(str(tmp_path))
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(OSError, match="regular file"):
        read_registered(str(tmp_path))
