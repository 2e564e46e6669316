"""USB devices that their port identifies, because their ids change: a Coral stick, a modem, firmware updates (DFU)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.declaration import parse_resources
from node_device_plugin.devices.discovery import Discoverer
from node_device_plugin.devices.reason import kind_of
from node_device_plugin.devices.table import GONE, DeviceTable

from ...cdi import specs
from .conftest import LinksInside, Machine, discover, resource

CONTROLLER = "pci0000:00/0000:00:14.0"
BOOT, RUNTIME = ("1a6e", "089a"), ("18d1", "9302")
CORAL = {
    "usb": [{"vendor": "1a6e", "product": "089a"}, {"vendor": "18d1", "product": "9302"}],
    "identify_by": "port",
}
ID = "usb-0000:00:14.0-2"


def plug(
    machine: Machine, port: str, ids: tuple[str, str], devnum: int, peer: str = "", below: str = "", **more: str
) -> str:
    """A device at a port, e.g. 1-2. peer: of the port, below the controller, e.g. usb2/2-0:1.0/usb2-port1."""
    bus = port.partition("-")[0]
    directory = "/".join(filter(None, (CONTROLLER, f"usb{bus}", below, port)))
    devname = "bus/usb/%03d/%03d" % (int(bus), devnum)
    numbers = {"busnum": bus, "devnum": str(devnum)}
    machine.on_bus("usb", directory, idVendor=ids[0], idProduct=ids[1], devname=devname, **numbers, **more)
    if peer:
        # Only the links count. In the kernel, the port is a directory of the hub's interface.
        machine.link(f"/sys/devices/{directory}/port", f"/sys-ports/{port}")
        (machine.path / f"sys-ports/{port}").mkdir(parents=True, exist_ok=True)
        machine.link(f"/sys-ports/{port}/peer", f"/sys/devices/{CONTROLLER}/{peer}")
    return directory


def bus(machine: Machine, number: int, speed: str) -> None:
    directory = f"{CONTROLLER}/usb{number}"
    machine.on_bus("usb", directory, idVendor="1d6b", idProduct="0002", speed=speed)


def unplug(machine: Machine, port: str) -> None:
    machine.remove(f"/sys/bus/usb/devices/{port}")


def found(machine: Machine, discovery: dict[str, Any] = CORAL) -> dict[str, list[str]]:
    return {device.id: [node.path for node in device.nodes] for device in machine.find(discovery)}


def test_a_device_keeps_its_id_when_its_firmware_gives_it_other_ids(machine: Machine) -> None:
    plug(machine, "1-2", BOOT, 4)
    (before,) = machine.find(CORAL)
    unplug(machine, "1-2")
    assert found(machine) == {}
    # It has a serial number only now.
    plug(machine, "1-2", RUNTIME, 5, serial="0123456789ABCDEF")
    (after,) = machine.find(CORAL)
    assert before.id == after.id == ID
    assert [node.path for node in after.nodes] == ["/dev/bus/usb/001/005"]
    assert before.attributes.usb_port == after.attributes.usb_port == "0000:00:14.0-2"
    assert (before.attributes.usb_serial, after.attributes.usb_serial) == (None, "0123456789ABCDEF")
    assert after.properties == {
        "vendor": "18d1",
        "product": "9302",
        "serial": "0123456789ABCDEF",
        "port": "1-2",
        "busnum": "1",
        "devnum": "5",
    }


def test_by_default_other_ids_are_another_device(machine: Machine) -> None:
    by_serial = {"usb": CORAL["usb"]}
    plug(machine, "1-2", BOOT, 4)
    assert list(found(machine, by_serial)) == ["usb-1a6e-089a-1-2"]
    unplug(machine, "1-2")
    plug(machine, "1-2", RUNTIME, 5)
    assert list(found(machine, by_serial)) == ["usb-18d1-9302-1-2"]


def test_two_equal_sticks_are_two_devices_in_every_state(machine: Machine) -> None:
    plug(machine, "1-2", BOOT, 4)
    plug(machine, "1-3", BOOT, 5)
    assert list(found(machine)) == [ID, "usb-0000:00:14.0-3"]
    unplug(machine, "1-2")
    plug(machine, "1-2", RUNTIME, 6, serial="1")
    assert found(machine) == {ID: ["/dev/bus/usb/001/006"], "usb-0000:00:14.0-3": ["/dev/bus/usb/001/005"]}
    assert found(machine, {**CORAL, "id_prefix": "lab-"}).keys() == {"lab-" + ID, "lab-usb-0000:00:14.0-3"}
    for pattern in ("1-2", "0000:00:14.0-2"):
        assert list(found(machine, {**CORAL, "exclude": [pattern]})) == ["usb-0000:00:14.0-3"]


async def test_the_holder_keeps_a_device_that_is_away_for_a_moment(machine: Machine, tmp_path: Path) -> None:
    """Unhealthy while it is away; then the same id is healthy, and its spec has the new node."""
    cdi_dir = str(tmp_path / "specs")
    declared = resource(CORAL)
    table = DeviceTable(declared)
    discoverer = Discoverer(LinksInside(str(machine.path)), str(machine.path))

    async def look() -> dict[str, str | None]:
        devices = (await discoverer.discover([declared], dict))[declared.name].devices
        table.set_devices(devices)
        table.update({device.id: None for device in devices})
        # It runs a loop of its own.
        assert await asyncio.to_thread(specs.write, [declared._replace(devices=devices)], cdi_dir) == {}
        return {device.id: table.reason(device) for device in table.resource.devices}

    def in_spec() -> dict[str, str]:
        (spec,) = (json.loads(path.read_text()) for path in Path(cdi_dir).glob("*.json"))
        edits = {device["name"]: device["containerEdits"] for device in spec["devices"]}
        return {name: node["path"] for name, edit in edits.items() for node in edit["deviceNodes"]}

    plug(machine, "1-2", BOOT, 4)
    assert await look() == {ID: None}
    assert in_spec() == {ID: "/dev/bus/usb/001/004"}
    unplug(machine, "1-2")
    assert {device_id: kind_of(why or "") for device_id, why in (await look()).items()} == {ID: GONE}
    plug(machine, "1-2", RUNTIME, 5)
    assert await look() == {ID: None}
    assert in_spec() == {ID: "/dev/bus/usb/001/005"}


def test_a_device_without_its_nodes_yet_is_unhealthy_with_the_reason(machine: Machine) -> None:
    plug(machine, "1-2", BOOT, 4)
    with_port = {**CORAL, "nodes": [{"path": "/dev/ttyUSB*"}]}
    assert machine.left_out(with_port) == [
        (ID, "1-2 matched, but has no /dev/ttyUSB*: no driver is bound to it"),
    ]


def test_both_buses_of_a_connector_are_one_port(machine: Machine) -> None:
    """The boot loader of many devices is one of USB 2, and their firmware one of USB 3."""
    bus(machine, 1, "480")
    bus(machine, 2, "5000")
    plug(machine, "1-2", BOOT, 4, peer="usb2/2-0:1.0/usb2-port1")
    assert list(found(machine)) == [ID]
    # The kernel may report the new device before it removes the former one.
    plug(machine, "2-1", RUNTIME, 2, peer="usb1/1-0:1.0/usb1-port2")
    assert found(machine) == {ID: ["/dev/bus/usb/001/004"]}
    assert machine.left_out(CORAL) == [(ID, "1-2 already has this id")]
    unplug(machine, "1-2")
    assert found(machine) == {ID: ["/dev/bus/usb/002/002"]}


def test_ports_of_a_hub_have_two_buses_too(machine: Machine) -> None:
    bus(machine, 1, "480")
    bus(machine, 2, "10000")
    plug(machine, "2-1.4", RUNTIME, 3, peer="usb1/1-2/1-2:1.0/1-2-port4", below="2-1")
    assert list(found(machine)) == ["usb-0000:00:14.0-2.4"]
    unplug(machine, "2-1.4")
    plug(machine, "1-2.4", BOOT, 3, peer="usb2/2-1/2-1:1.0/2-1-port4", below="1-2")
    assert list(found(machine)) == ["usb-0000:00:14.0-2.4"]


def test_a_port_of_usb_3_alone_is_not_the_one_of_usb_2_with_its_number(machine: Machine) -> None:
    bus(machine, 1, "480")
    bus(machine, 2, "5000")
    plug(machine, "1-2", BOOT, 4)
    plug(machine, "2-2", RUNTIME, 2)
    assert found(machine) == {
        ID: ["/dev/bus/usb/001/004"],
        "usb-0000:00:14.0-ss2": ["/dev/bus/usb/002/002"],
    }


def test_another_number_of_the_bus_after_a_reboot_is_the_same_port(machine: Machine) -> None:
    plug(machine, "3-2", RUNTIME, 4)
    assert list(found(machine)) == [ID]


def test_another_resource_cannot_offer_the_device_under_its_next_ids(machine: Machine) -> None:
    first, second = (
        {"name": f"example.com/{name}", "discover": {"usb": [selector], "identify_by": "port"}}
        for name, selector in zip(("boot", "runtime"), CORAL["usb"])
    )
    plug(machine, "1-2", RUNTIME, 5)
    resources = parse_resources([first, second])
    found = discover(resources, str(machine.path))
    assert [device.id for device in found["example.com/runtime"].devices] == [ID]
    boot = resources[0]._replace(devices=found["example.com/runtime"].devices)
    found = discover(resources, str(machine.path), known={boot.name: boot})
    assert found["example.com/runtime"].devices == ()
    ((_device, why),) = found["example.com/runtime"].left_out
    assert why.startswith("example.com/boot already has a device with this id")


@pytest.mark.parametrize(("peer", "port"), [("somewhere/else", "0000:00:14.0-2"), ("usb9-port", "0000:00:14.0-2")])
def test_a_link_that_leads_to_no_port_is_no_peer(machine: Machine, peer: str, port: str) -> None:
    plug(machine, "1-2", BOOT, 4, peer=peer)
    (device,) = machine.find(CORAL)
    assert device.attributes.usb_port == port


def test_the_device_of_a_whole_bus_keeps_the_kernels_name(machine: Machine) -> None:
    bus(machine, 1, "480")
    machine.node_of(f"{CONTROLLER}/usb1", "bus/usb/001/001")
    (device,) = machine.find({"usb": [{"vendor": "1d6b"}], "identify_by": "port"})
    assert (device.id, device.attributes.usb_port) == ("usb-usb1", "usb1")
