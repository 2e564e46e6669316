"""What a container holds, by the kubelet's checkpoint."""

import json
from pathlib import Path

from node_device_plugin.kubelet.checkpoint import FILE_NAME, read_checkpoint


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
