"""Device nodes by udev's properties, in an injected sysfs and database."""

from pathlib import Path
from typing import Any

import yaml

from node_device_plugin.cdi import writer
from node_device_plugin.devices.discovery.udev import Udev

from ...cdi import specs
from .conftest import Machine, discover, resource

EXAMPLES = Path(__file__).parents[4] / "examples" / "cookbook"
USB = "pci0000:00/0000:00:14.0/usb1/1-%d/1-%d:1.0"


def camera(machine: Machine, number: int, database: str, serial: str = "046d_C920_A1") -> None:
    """A camera at a USB port, as the kernel and udev know it. database: further lines."""
    directory = "%s/video4linux/video%d" % (USB % (number, number), number)
    machine.file("/sys/devices/%s/dev" % directory, "81:%d\n" % number)
    machine.file("/sys/devices/%s/uevent" % directory, "MAJOR=81\nMINOR=%d\nDEVNAME=video%d\n" % (number, number))
    machine.file("/sys/devices/%s/index" % directory, "0")
    machine.link("/sys/devices/%s/subsystem" % directory, "/sys/class/video4linux")
    machine.link("/sys/class/video4linux/video%d" % number, "../../devices/" + directory)
    machine.file("/dev/video%d" % number)
    path = "pci-0000:00:14.0-usb-0:%d:1.0-video-index0" % number
    machine.file(
        "/run/udev/data/c81:%d" % number,
        "S:v4l/by-path/%s\nI:63\nE:ID_SERIAL=%s\nE:ID_V4L_CAPABILITIES=:capture:\n%sG:seat\n"
        % (path, serial, database),
    )


BY_ID = "S:v4l/by-id/usb-046d_C920_A1-video-index0\n"


def select(**properties: str) -> dict[str, Any]:
    return {"udev": [{"subsystem": "video4linux", "properties": properties}]}


def test_a_node_is_selected_by_properties_of_udev_and_of_the_kernel(machine: Machine) -> None:
    camera(machine, 0, BY_ID)
    camera(machine, 1, "", serial="Other")
    (device,) = machine.find(select(ID_SERIAL="046d_*", ID_V4L_CAPABILITIES="*:capture:*"))
    assert device.id == "v4l-by-id-usb-046d_C920_A1-video-index0"
    assert [(node.path, node.host_path) for node in device.nodes] == [("/dev/video0", "/dev/video0")]
    assert device.properties == {"ID_SERIAL": "046d_C920_A1", "ID_V4L_CAPABILITIES": ":capture:"}
    assert device.attributes.known() == {"pcie_root": "pci0000:00", "subsystem": "video4linux"}
    both = machine.find(select())
    assert [device.id for device in both] == [
        "v4l-by-id-usb-046d_C920_A1-video-index0",
        "v4l-by-path-pci-0000:00:14.0-usb-0:1:1.0-video-index0",
    ]
    for properties in ({"MINOR": "1"}, {"DEVNAME": "/dev/video1"}, {"DEVPATH": "/devices/*/*/*/*/*/*/video1"}):
        (device,) = machine.find(select(**properties))
        assert device.nodes[0].host_path == "/dev/video1"
    for properties in ({"ID_SERIAL": "x"}, {"ID_SERIAL": "*", "ID_MODEL": "*"}, {"G": "seat"}):
        assert machine.find(select(**properties)) == []
    assert machine.find({"udev": [{"subsystem": "tty"}]}) == []
    for excluded in ("/dev/video0", "/dev/v4l/by-id/*"):
        assert len(machine.find({**select(), "exclude": [excluded]})) == 1


def test_a_device_of_a_bus_and_a_block_device(machine: Machine) -> None:
    machine.on_bus("usb", "pci0000:00/usb1/1-1", idVendor="0403", idProduct="6001", devname="bus/usb/001/002")
    machine.file("/run/udev/data/c1:2", "E:ID_MODEL=FT232\n")
    machine.on_bus("usb", "pci0000:00/usb1/1-1/1-1:1.0", bInterfaceNumber="00")
    machine.node_of("virtual/block/loop0", "loop0")
    machine.link("/sys/class/block/loop0", "../../devices/virtual/block/loop0")
    machine.file("/run/udev/data/b1:2", "E:ID_FS_TYPE=ext4\n")
    found = [
        machine.find({"udev": [{"subsystem": name, "properties": {key: "*"}}]})
        for name, key in (("usb", "ID_MODEL"), ("block", "ID_FS_TYPE"))
    ]
    assert [[device.id for device in each] for each in found] == [["bus-usb-001-002"], ["loop0"]]


def test_twins_are_told_apart_by_their_ports_and_keep_what_is_offered(machine: Machine, tmp_path: Path) -> None:
    cdi_dir = str(tmp_path / "specs")
    one = resource(select())

    def look() -> dict[str, str]:
        found = discover([one], str(machine.path), offered=lambda: writer.offered(cdi_dir))[one.name].devices
        assert specs.write([one._replace(devices=found)], cdi_dir) == {}
        return {device.id: device.nodes[0].host_path for device in found}

    camera(machine, 0, BY_ID)
    first = {"v4l-by-id-usb-046d_C920_A1-video-index0": "/dev/video0"}
    assert look() == first
    camera(machine, 1, BY_ID)
    second = {"v4l-by-path-pci-0000:00:14.0-usb-0:1:1.0-video-index0": "/dev/video1"}
    assert look() == {**first, **second}
    machine.remove("/sys/class/video4linux/video0")
    assert look() == second


def test_a_device_that_is_offered_by_its_node_keeps_its_id_when_udev_makes_links(
    machine: Machine, tmp_path: Path
) -> None:
    entry = "/run/udev/data/c81:0"
    camera(machine, 0, BY_ID)
    with_links = (machine.path / entry[1:]).read_text()
    machine.file(entry, "E:ID_SERIAL=046d_C920_A1\n")
    one, cdi_dir = resource(select()), str(tmp_path / "specs")
    for database in ("E:ID_SERIAL=046d_C920_A1\n", with_links):
        machine.file(entry, database)
        (found,) = discover([one], str(machine.path), offered=lambda: writer.offered(cdi_dir)).values()
        assert [device.id for device in found.devices] == ["video0"]
        assert specs.write([one._replace(devices=found.devices)], cdi_dir) == {}


def test_a_device_waits_for_udev_if_the_node_has_it(machine: Machine) -> None:
    """Else it would get another name as soon as udev has made its links."""
    camera(machine, 0, BY_ID)
    camera(machine, 1, "")
    machine.remove("/run/udev/data/c81:1")
    assert [device.nodes[0].path for device in machine.find(select())] == ["/dev/video0"]
    assert machine.left_out(select()) == [("video1", "/dev/video1 matched, but udev has not handled it yet")]
    machine.remove("/run/udev/data/c81:0")
    assert [device.id for device in machine.find(select())] == ["video0", "video1"]
    machine.remove("/dev/video1")
    assert machine.left_out(select()) == [("video1", "/dev/video1 matched, but does not exist")]


def test_a_container_gets_the_node_where_it_is_wanted(machine: Machine) -> None:
    camera(machine, 0, BY_ID, serial="a/b")
    machine.file("/dev/media0")
    more = {"container_path": "/dev/camera-{ID_SERIAL}", "nodes": [{"path": "/dev/media0"}]}
    (device,) = machine.find({**select(ID_SERIAL="a/*"), **more})
    assert [(node.path, node.host_path) for node in device.nodes] == [
        ("/dev/camera-a_b", "/dev/video0"),
        ("/dev/media0", "/dev/media0"),
    ]


def test_a_change_of_the_database_is_seen() -> None:
    """udev writes it after the kernel's message."""
    assert list(Udev().watch_paths(resource(select()).discover)) == ["/run/udev/data/*"]


def test_a_property_that_is_no_path_costs_only_its_device(machine: Machine) -> None:
    camera(machine, 0, "E:MODEL=a\0b\n")
    camera(machine, 1, BY_ID + "E:MODEL=ok\n")
    machine.file("/dev/ok/x")
    (device,) = machine.find({**select(MODEL="*"), "nodes": [{"path": "/dev/{MODEL}/*"}]})
    assert device.properties == {"MODEL": "ok"}


def test_each_partition_of_an_amd_gpu_is_found(machine: Machine) -> None:
    """In mode CPX, one of eight render nodes belongs to the PCI function; the others are platform devices."""
    directories = ["pci0000:c0/0000:c1:00.0", *("platform/amdgpu_xcp_%d" % number for number in range(1, 8))]
    machine.file("/sys/devices/pci0000:c0/0000:c1:00.0/numa_node", "1\n")
    machine.node_of(directories[0] + "/drm/card1", "dri/card1")
    machine.link("/sys/class/drm/card1", "../../devices/%s/drm/card1" % directories[0])
    for number, directory in enumerate(directories, start=128):
        machine.file("/sys/devices/%s/drm/renderD%d/dev" % (directory, number), "226:%d\n" % number)
        machine.file("/sys/devices/%s/drm/renderD%d/uevent" % (directory, number), "DEVNAME=dri/renderD%d\n" % number)
        machine.link("/sys/class/drm/renderD%d" % number, "../../devices/%s/drm/renderD%d" % (directory, number))
        machine.file("/dev/dri/renderD%d" % number)
        place = directory.rpartition("/")[2]
        path = ("pci-" if number == 128 else "platform-") + place
        machine.file("/run/udev/data/c226:%d" % number, "S:dri/by-path/%s-render\nE:ID_PATH=%s\n" % (path, path))
    machine.file("/run/udev/data/c1:2", "S:dri/by-path/pci-0000:c1:00.0-card\n")
    machine.file("/dev/kfd")
    recipe = yaml.safe_load((EXAMPLES / "gpu-amd" / "declaration.yml").read_text())["node_devices_resources_gpu_amd"][0]
    found = machine.find(recipe["discover"])
    assert [[node.path for node in each.nodes] for each in found] == [
        ["/dev/dri/renderD%d" % number, "/dev/kfd"] for number in range(128, 136)
    ]
    assert [found[0].id, found[1].id] == [
        "dri-by-path-pci-0000:c1:00.0-render",
        "dri-by-path-platform-amdgpu_xcp_1-render",
    ]
    only = {
        "udev": [
            {"subsystem": "drm", "properties": {"DEVNAME": "/dev/dri/renderD*", "ID_PATH": "platform-amdgpu_xcp_*"}}
        ]
    }
    assert len(machine.find(only)) == 7
