"""Nodes that templates give to a device."""

import pytest

from .conftest import Machine


@pytest.mark.parametrize(("serial", "path"), [("../sda", "/dev/rig/{serial}"), ("..", "/dev/rig/{serial}/sda")])
def test_a_device_cannot_choose_a_node_elsewhere_by_its_serial_number(machine: Machine, serial: str, path: str) -> None:
    machine.on_bus("usb", "pci0000:00/usb1/1-1", idVendor="0403", idProduct="6001", serial=serial, devname="ttyS9")
    machine.file("/dev/sda")
    machine.file("/dev/rig/mine")
    discover = {"usb": [{"vendor": "0403"}], "nodes": [{"path": path}]}
    assert machine.find(discover) == []
    assert len(machine.left_out(discover)) == 1


def test_a_slash_in_a_serial_number_is_an_underscore_in_a_path_as_in_the_links_of_udev(machine: Machine) -> None:
    machine.on_bus("usb", "pci0000:00/usb1/1-1", idVendor="0403", idProduct="6001", serial="A/1", devname="ttyS9")
    machine.file("/dev/rig/A_1")
    (device,) = machine.find({"usb": [{"vendor": "0403"}], "nodes": [{"path": "/dev/rig/{serial}"}]})
    assert [node.host_path for node in device.nodes] == ["/dev/rig/A_1"]
