"""The answer to Allocate."""

import pytest
import yaml

from node_device_plugin.allocation import UnhealthyDevice, UnknownDevice, allocate
from node_device_plugin.declaration import parse_resources
from node_device_plugin.device_table import DeviceTable

(RESOURCE,) = parse_resources(
    yaml.safe_load(
        """
        - name: example.com/dev
          env: {"DEV_{index}": "{id}"}
          devices: [{id: zz, nodes: [{path: /dev/z}]}, {id: aa}, {id: bb, nodes: [{path: /dev/b}]}]
        """
    )
)


def table(**unhealthy: str) -> DeviceTable:
    made = DeviceTable(RESOURCE)
    made.update({device.id: unhealthy.get(device.id) for device in RESOURCE.devices})
    return made


async def test_names_and_numbers_follow_the_declaration() -> None:
    answer = allocate(table(), ["bb", "aa", "zz"])
    assert dict(answer.envs) == {"DEV_0": "zz", "DEV_1": "aa", "DEV_2": "bb"}
    assert [device.name for device in answer.cdi_devices] == ["example.com/dev=zz", "example.com/dev=bb"]
    assert not answer.devices
    assert not answer.mounts


async def test_an_unknown_or_unhealthy_device_is_refused_by_name() -> None:
    with pytest.raises(UnknownDevice, match=r"example\.com/dev has no device cc"):
        allocate(table(), ["aa", "cc"])
    with pytest.raises(UnhealthyDevice, match="device bb: /dev/b: gone"):
        allocate(table(bb="/dev/b: gone"), ["aa", "bb"])
