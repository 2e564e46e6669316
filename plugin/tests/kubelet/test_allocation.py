"""The answer to Allocate."""

import pytest
import yaml

from node_device_plugin.declaration import parse_resources
from node_device_plugin.devices.reason import Reason
from node_device_plugin.devices.table import DeviceTable
from node_device_plugin.kubelet.device_plugin.allocation import allocate
from node_device_plugin.kubelet.device_plugin.device_list import DeviceList, NotAllocatable
from node_device_plugin.verification.container_view import expected_in_container

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
    answer = allocate(DeviceList(table()), ["bb", "aa", "zz"])
    assert dict(answer.envs) == {"DEV_0": "zz", "DEV_1": "aa", "DEV_2": "bb"}
    assert [device.name for device in answer.cdi_devices] == ["example.com/dev=zz", "example.com/dev=bb"]
    assert not answer.devices
    assert not answer.mounts


async def test_an_unknown_or_unhealthy_device_is_refused_by_name() -> None:
    with pytest.raises(NotAllocatable, match=r"the plugin offers no device cc of example\.com/dev") as refusal:
        allocate(DeviceList(table()), ["aa", "cc"])
    assert refusal.value.code.name == "NOT_FOUND"
    with pytest.raises(NotAllocatable, match="device bb: /dev/b: gone") as refusal:
        allocate(DeviceList(table(bb="/dev/b: gone")), ["aa", "bb"])
    assert refusal.value.code.name == "FAILED_PRECONDITION"
    # Users see the answer in the events of their pods.
    with pytest.raises(NotAllocatable, match=r"device bb: held by another pod$"):
        allocate(DeviceList(table(bb=Reason("held by secret/name", "held", "held by another pod"))), ["bb"])


WITHOUT_CDI = """
- name: example.com/dev
  injection: device_nodes
  env: {"DEV_{index}": "{id}", BOTH: "{id}"}
  annotations: {"example.com/dev-{index}": "{host_path} {port}"}
  container_edits:
    env: [BOTH=the edits', PROVIDER=me]
    mounts: [{host_path: /etc/dev, container_path: /etc/dev, options: [ro, bind]}]
  devices:
    - id: d0
      nodes: [{path: /dev/d, host_path: /dev/zero, permissions: r}, {path: /dev/ctl, host_path: /dev/null}]
      properties: {port: "7"}
      container_edits: {mounts: [{host_path: /run/d0, container_path: /run/d0}]}
"""


async def test_device_nodes_and_mounts_where_there_is_no_cdi() -> None:
    (resource,) = parse_resources(yaml.safe_load(WITHOUT_CDI))
    made = DeviceTable(resource)
    made.update({"d0": None})
    answer = allocate(DeviceList(made), ["d0"])
    assert not answer.cdi_devices
    assert [(d.container_path, d.host_path, d.permissions) for d in answer.devices] == [
        ("/dev/d", "/dev/zero", "r"),
        ("/dev/ctl", "/dev/null", "rw"),
    ]
    assert [(m.container_path, m.host_path, m.read_only) for m in answer.mounts] == [
        ("/etc/dev", "/etc/dev", True),
        ("/run/d0", "/run/d0", False),
    ]
    assert dict(answer.envs) == {"DEV_0": "d0", "BOTH": "the edits'", "PROVIDER": "me"}
    assert dict(answer.annotations) == {"example.com/dev-0": "/dev/zero 7"}
    assert not resource.uses_cdi


async def test_what_is_expected_of_a_container_is_the_same_without_cdi() -> None:
    data = yaml.safe_load(WITHOUT_CDI)
    (without,) = parse_resources(data)
    (by_cdi,) = parse_resources([{**data[0], "injection": "cdi"}])
    assert expected_in_container(without, without.devices) == expected_in_container(by_cdi, by_cdi.devices)


async def test_a_container_gets_no_more_than_its_limit() -> None:
    keys = {"replicas": 4, "container_limit": 2, "env": {"DEV": "x"}}
    (resource,) = parse_resources([{"name": "example.com/dev", "devices": [{"id": "d0"}], **keys}])
    made = DeviceTable(resource)
    made.update({"d0": None})
    assert allocate(DeviceList(made), ["d0::3", "d0::0"])
    with pytest.raises(
        NotAllocatable, match=r"a container may have at most 2 of example\.com/dev \(container_limit\), not 3"
    ) as refusal:
        allocate(DeviceList(made), ["d0::0", "d0::1", "d0::2"])
    assert refusal.value.code.name == "RESOURCE_EXHAUSTED"
