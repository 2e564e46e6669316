"""What a device node is, whatever its path: in a machine of files whose nodes are real."""

import os
import stat
from pathlib import Path
from typing import Optional

import pytest

from node_device_plugin.devices.identity import Identities, Identity, ambiguous_serials

from .discovery.conftest import Machine

USB = "pci0000:00/0000:00:14.0/usb1/"


class Nodes:
    """Device nodes with numbers that the machine's sysfs knows."""

    def __init__(self, path: Path) -> None:
        self.machine = Machine(path)
        self.root = str(path)
        self.identities = Identities(self.root)

    def node(self, path: str, number: str, directory: str) -> None:
        """A node, by its number such as char/188:0, with its directory in /sys/devices."""
        kind, _, numbers = number.partition("/")
        target = self.machine.path / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        major, minor = map(int, numbers.split(":"))
        try:
            os.mknod(target, stat.S_IFBLK if kind == "block" else stat.S_IFCHR, os.makedev(major, minor))
        except PermissionError:
            pytest.skip("mknod needs root")
        self.machine.file(f"/sys/devices/{directory}/uevent")
        self.machine.link(f"/sys/dev/{number}", f"../../devices/{directory}")

    def usb(self, port: str, serial: Optional[str] = None, ids: str = "0403:6001") -> str:
        """A USB device; returns its directory in /sys/devices."""
        vendor, product = ids.split(":")
        attributes = {"idVendor": vendor, "idProduct": product, **({"serial": serial} if serial else {})}
        self.machine.on_bus("usb", USB + port, **attributes)
        return USB + port

    def identity(self, path: str) -> Identity:
        return self.identities.read([path])[path]


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    return Nodes(tmp_path)


def test_a_serial_number_is_the_device_at_each_port(nodes: Nodes) -> None:
    nodes.node("/dev/ttyUSB0", "char/188:0", nodes.usb("1-1", "A50") + "/1-1:1.0/ttyUSB0/tty/ttyUSB0")
    first = nodes.identity("/dev/ttyUSB0")
    assert first == Identity(
        "/dev/ttyUSB0",
        "char/188:0",
        "usb port 1-1 0403:6001 1.0 ttyUSB#0 tty ttyUSB#0",
        "usb 0403:6001 A50 1.0 ttyUSB#0 tty ttyUSB#0",
    )
    nodes.node("/dev/ttyUSB7", "char/188:7", nodes.usb("1-2.3", "A50") + "/1-2.3:1.0/ttyUSB7/tty/ttyUSB7")
    moved = nodes.identity("/dev/ttyUSB7")
    assert moved.serial == first.serial
    assert moved.token() == first.token()
    nodes.node("/dev/ttyUSB8", "char/188:8", nodes.usb("1-2.4", "A51") + "/1-2.4:1.0/ttyUSB8/tty/ttyUSB8")
    assert nodes.identity("/dev/ttyUSB8").token() != first.token()


def test_without_a_serial_number_the_port_and_the_model_are_the_device(nodes: Nodes) -> None:
    nodes.node("/dev/ttyUSB0", "char/188:0", nodes.usb("1-1") + "/1-1:1.0/ttyUSB0/tty/ttyUSB0")
    first = nodes.identity("/dev/ttyUSB0")
    assert (first.serial, first.place) == ("", "usb port 1-1 0403:6001 1.0 ttyUSB#0 tty ttyUSB#0")
    # The same stick re-enumerates at its port, with another number.
    nodes.node("/dev/ttyUSB1", "char/188:1", USB + "1-1/1-1:1.0/ttyUSB1/tty/ttyUSB1")
    (nodes.machine.path / "sys/devices" / USB / "1-1/1-1:1.0/ttyUSB0").rename(nodes.machine.path / "old")
    assert nodes.identity("/dev/ttyUSB1").token() == first.token()
    # Another model is plugged in there.
    nodes.usb("1-1", ids="10c4:ea60")
    nodes.node("/dev/ttyUSB2", "char/188:2", USB + "1-1/1-1:1.0/ttyUSB2/tty/ttyUSB2")
    assert nodes.identity("/dev/ttyUSB2").token() != first.token()


def test_nodes_of_one_device_differ_by_interface_and_rank(nodes: Nodes) -> None:
    device = nodes.usb("1-1", "CAM")
    paths = ["1-1:1.0/video4linux/video2", "1-1:1.0/video4linux/video10", "1-1:1.2/video4linux/video3"]
    for minor, path in enumerate(paths):
        nodes.node(f"/dev/video{minor}", f"char/81:{minor}", f"{device}/{path}")
    tokens = [nodes.identity(f"/dev/video{minor}").token() for minor in range(3)]
    assert tokens == [
        "usb 0403:6001 CAM 1.0 video#linux0 video#0",
        "usb 0403:6001 CAM 1.0 video#linux0 video#1",
        "usb 0403:6001 CAM 1.2 video#linux0 video#0",
    ]


def test_the_number_of_a_hid_device_is_no_part_of_it(nodes: Nodes) -> None:
    device = nodes.usb("1-1", "KEY")
    nodes.node("/dev/hidraw3", "char/240:3", f"{device}/1-1:1.0/0003:1050:0407.00AF/hidraw/hidraw3")
    assert nodes.identity("/dev/hidraw3").token() == "usb 0403:6001 KEY 1.0 0003:1050:0407 hidraw hidraw#0"


def test_a_pci_function_is_its_address(nodes: Nodes) -> None:
    directory = "pci0000:00/0000:00:02.0"
    nodes.machine.file(f"/sys/devices/{directory}/vendor", "0x8086")
    nodes.node("/dev/dri/renderD129", "char/226:129", directory + "/drm/renderD129")
    found = nodes.identity("/dev/dri/renderD129")
    assert found == Identity("/dev/dri/renderD129", "char/226:129", "pci 0000:00:02.0 drm renderD#0", "")


def test_a_disk_is_its_name_and_a_partition_belongs_to_it(nodes: Nodes) -> None:
    """One serial number may have several namespaces, which differ by their wwid only (systemd#31448)."""
    directory = "pci0000:00/0000:00:04.0/nvme/nvme0/nvme0n1"
    nodes.machine.file(f"/sys/devices/{directory}/wwid", "eui.0025385b71b00001")
    nodes.machine.file(f"/sys/devices/{directory}/nvme0n1p2/partition", "2")
    nodes.node("/dev/nvme0n1", "block/259:0", directory)
    nodes.node("/dev/nvme0n1p2", "block/259:2", directory + "/nvme0n1p2")
    assert nodes.identity("/dev/nvme0n1").token() == "disk eui.0025385b71b00001"
    assert nodes.identity("/dev/nvme0n1p2").token() == "disk eui.0025385b71b00001 2"
    nodes.machine.file("/sys/devices/virtual/block/dm-3/dm/uuid", "LVM-abc")
    nodes.node("/dev/dm-3", "block/253:3", "virtual/block/dm-3")
    assert nodes.identity("/dev/dm-3").token() == "disk LVM-abc"


def test_a_node_without_hardware_is_its_number_and_its_path(nodes: Nodes) -> None:
    nodes.node("/dev/null", "char/1:3", "virtual/mem/null")
    assert nodes.identity("/dev/null") == Identity("/dev/null", "char/1:3")
    nodes.machine.link("/dev/by-id/it", "../null")
    assert nodes.identity("/dev/by-id/it") == Identity("/dev/null", "char/1:3")
    assert nodes.identity("/dev/null").token() == "char/1:3 /dev/null"


def test_a_missing_path_has_no_identity_and_another_file_is_its_path(nodes: Nodes) -> None:
    nodes.machine.file("/opt/model")
    assert nodes.identities.read(["/opt/model", "/dev/none", "/dev/nu\0ll"]) == {"/opt/model": Identity("/opt/model")}


def test_a_serial_number_that_several_devices_have_tells_nothing(nodes: Nodes) -> None:
    """Some vendors give all of their devices one serial number; the second one may be no device of ours."""
    nodes.node("/dev/ttyUSB0", "char/188:0", nodes.usb("1-1", "0001") + "/1-1:1.0/ttyUSB0/tty/ttyUSB0")
    found = nodes.identity("/dev/ttyUSB0")
    assert ambiguous_serials([found], nodes.root) == frozenset()
    nodes.usb("1-2", "00012")
    assert ambiguous_serials([found], nodes.root) == frozenset()
    nodes.usb("1-3", "0001")
    assert ambiguous_serials([found], nodes.root) == {found.serial}
    assert found.token([found.serial]) == found.place
    # Two paths to one disk.
    disks = [Identity("/dev/sda", "block/8:0", "", "disk X"), Identity("/dev/sdb", "block/8:16", "", "disk X")]
    assert ambiguous_serials(disks, nodes.root) == {"disk X"}


def test_sysfs_is_read_again_only_for_a_new_node(nodes: Nodes) -> None:
    path, directory = "/dev/ttyUSB0", nodes.usb("1-1", "A50") + "/1-1:1.0/ttyUSB0/tty/ttyUSB0"
    nodes.node(path, "char/188:0", directory)
    first = nodes.identity(path)
    nodes.usb("1-1", "A51")
    assert nodes.identity(path) is first
    nodes.node(path, "char/188:0", directory)
    assert "A51" in nodes.identity(path).serial


def test_another_device_behind_a_node_that_stays_is_seen(nodes: Nodes) -> None:
    """A node that nobody removes, as in the /dev of a container that acts as a node."""
    path, directory = "/dev/ttyUSB0", nodes.usb("1-1", "A50") + "/1-1:1.0/ttyUSB0/tty/ttyUSB0"
    nodes.node(path, "char/188:0", directory)
    assert "A50" in nodes.identity(path).serial
    devices = nodes.machine.path / "sys/devices" / USB
    (devices / "1-1").rename(devices / "before")
    nodes.usb("1-1", "A51")
    nodes.machine.file(f"/sys/devices/{directory}/uevent")
    assert "A51" in nodes.identity(path).serial
