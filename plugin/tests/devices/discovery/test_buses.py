"""USB and PCI devices, in an injected sysfs."""

from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.cdi import writer

from ...cdi import specs
from .conftest import Machine, discover, resource

HUB = "pci0000:00/0000:00:14.0/usb1"


def usb(machine: Machine, port: str, number: int, serial: str = "", product: str = "6001", below: str = HUB) -> str:
    directory = "%s/%s" % (below, port)
    attributes = {"serial": serial} if serial else {}
    machine.on_bus(
        "usb",
        directory,
        idVendor="0403",
        idProduct=product,
        busnum="1",
        devnum=str(number),
        devname="bus/usb/001/%03d" % number,
        **attributes,
    )
    return directory


def test_usb_by_vendor_product_and_serial(machine: Machine) -> None:
    directory = usb(machine, "1-2", 4, serial="A50285BI")
    machine.on_bus("usb", directory + "/1-2:1.0", bInterfaceNumber="00")
    machine.node_of(directory + "/1-2:1.0/ttyUSB0/tty/ttyUSB0", "ttyUSB0")
    usb(machine, "1-3", 5, product="6015")
    (device,) = machine.find({"usb": [{"vendor": "0403", "product": "6001"}]})
    assert device.id == "usb-0403-6001-A50285BI"
    told = {"vendor": "0403", "product": "6001", "serial": "A50285BI", "port": "1-2", "busnum": "1", "devnum": "4"}
    assert device.properties == told
    assert sorted(node.path for node in device.nodes) == ["/dev/bus/usb/001/004", "/dev/ttyUSB0"]
    assert [d.id for d in machine.find({"usb": [{"vendor": "0403"}]})] == [
        "usb-0403-6001-A50285BI",
        "usb-0403-6015-1-3",
    ]
    assert [d.id for d in machine.find({"usb": [{"serial": "A5*"}]})] == ["usb-0403-6001-A50285BI"]
    assert [d.id for d in machine.find({"usb": [{"vendor": "0403"}], "exclude": ["1-2"]})] == ["usb-0403-6015-1-3"]
    assert machine.find({"usb": [{"vendor": "0404"}, {"product": "6002"}, {"serial": "B*"}]}) == []


def test_the_same_serial_number_twice_is_told_apart_by_the_port(machine: Machine) -> None:
    usb(machine, "1-1", 1, serial="0001")
    usb(machine, "1-10", 2, serial="0001")
    found = machine.find({"usb": [{"vendor": "0403"}], "exclude": ["1-10"]})
    assert [device.id for device in found] == ["usb-0403-6001-0001-1-1"]


def test_an_id_that_is_offered_stays_when_another_one_of_its_serial_number_comes(
    machine: Machine, tmp_path: Path
) -> None:
    """Else it would be given away twice: to who holds it by the one id, and to the next by the other."""
    cdi_dir = str(tmp_path / "specs")
    one = resource({"usb": [{"vendor": "0403"}]})

    def look() -> dict[str, str]:
        found = discover([one], str(machine.path), offered=lambda: writer.offered(cdi_dir))[one.name].devices
        assert specs.write([one._replace(devices=found)], cdi_dir) == {}
        return {device.id: device.properties["port"] for device in found}

    plain = "usb-0403-6001-0001"
    first = usb(machine, "1-1", 1, serial="0001")
    assert look() == {plain: "1-1"}
    usb(machine, "1-2", 2, serial="0001")
    # In whichever process, after whatever restart: the spec says it.
    for _ in range(2):
        assert look() == {plain: "1-1", plain + "-1-2": "1-2"}
    machine.remove("/dev/bus/usb/001/001")
    machine.remove("/sys/bus/usb/devices/1-1")
    assert look() == {plain + "-1-2": "1-2"}
    # Plugged in again it is another one.
    machine.on_bus("usb", first, idVendor="0403", idProduct="6001", serial="0001", devname="bus/usb/001/003")
    assert look() == {plain + "-1-1": "1-1", plain + "-1-2": "1-2"}


def test_a_driver_selects_by_what_the_kernel_bound(machine: Machine) -> None:
    """A USB device itself is bound to ``usb``: the drivers of its interfaces count."""
    for port, driver in (("1-1", "ftdi_sio"), ("1-2", "cdc_acm")):
        directory = usb(machine, port, int(port[-1]))
        machine.driven_by(directory, "usb", "usb")
        machine.on_bus("usb", "%s/%s:1.0" % (directory, port), bInterfaceNumber="00")
        machine.driven_by("%s/%s:1.0" % (directory, port), driver, "usb")
    for pattern, ports in (("ftdi_sio", ["1-1"]), ("*", ["1-1", "1-2"]), ("usb", [])):
        found = machine.find({"usb": [{"vendor": "0403", "driver": pattern}]})
        assert [device.properties["port"] for device in found] == ports
    card = pci(machine, "0000:3b:00.0")
    machine.node_of(card + "/drm/card1", "dri/card1")
    machine.node_of(pci(machine, "0000:3c:00.0") + "/drm/card2", "dri/card2")
    machine.driven_by(card, "vfio-pci")
    for pattern, ids in (("vfio-*", ["pci-0000:3b:00.0"]), ("nvidia", []), ("*", ["pci-0000:3b:00.0"])):
        assert [device.id for device in machine.find({"pci": [{"driver": pattern}]})] == ids


def test_the_nodes_of_a_camera_are_in_natural_order(machine: Machine) -> None:
    directory = usb(machine, "1-2", 4) + "/1-2:1.0/video4linux"
    for number in (9, 10):
        machine.node_of("%s/video%d" % (directory, number), "video%d" % number)
    (device,) = machine.find({"usb": [{"vendor": "0403"}], "nodes": [{"path": "/dev/video*"}]})
    assert [node.path for node in device.nodes] == ["/dev/video9", "/dev/video10"]


def test_a_placeholder_is_the_path_of_one_node(machine: Machine) -> None:
    directory = usb(machine, "1-2", 4, serial="A5")
    machine.node_of(directory + "/1-2:1.0/ttyUSB0/tty/ttyUSB0", "ttyUSB0")
    adapter = {
        "usb": [{"vendor": "0403"}],
        "nodes": [{"path": "/dev/bus/usb/*/*"}, {"path": "/dev/ttyUSB*", "placeholder": "tty"}],
    }
    (device,) = machine.find(adapter, env={"PORT_{index}": "{tty}"})
    assert device.template_values()["tty"] == "/dev/ttyUSB0"
    machine.node_of(directory + "/1-2:1.1/ttyUSB1/tty/ttyUSB1", "ttyUSB1")
    assert machine.left_out(adapter) == [
        ("usb-0403-6001-A5", "1-2 matched, but {tty} could be any of /dev/ttyUSB0, /dev/ttyUSB1")
    ]


def test_what_hangs_on_a_hub_is_not_the_hubs(machine: Machine) -> None:
    hub = usb(machine, "1-1", 1, product="0001")
    usb(machine, "1-1.4", 2, product="0002", below=hub)
    (device,) = machine.find({"usb": [{"product": "0001"}]})
    assert [node.path for node in device.nodes] == ["/dev/bus/usb/001/001"]


def test_a_device_does_not_get_the_nodes_behind_its_links(machine: Machine) -> None:
    """Its link to its class leads to the devices of others."""
    directory = usb(machine, "1-2", 4) + "/1-2:1.0/ttyUSB0"
    machine.node_of(directory + "/tty/ttyUSB0", "ttyUSB0")
    machine.node_of("platform/serial8250/tty/ttyS0", "ttyS0")
    machine.link("/sys/class/tty/ttyS0", "../../devices/platform/serial8250/tty/ttyS0")
    machine.link("/sys/devices/%s/tty/ttyUSB0/subsystem" % directory, "../" * 9 + "class/tty")
    (device,) = machine.find({"usb": [{"vendor": "0403"}]})
    assert [node.path for node in device.nodes] == ["/dev/bus/usb/001/004", "/dev/ttyUSB0"]


def test_nodes_choose_among_those_of_the_device(machine: Machine) -> None:
    directory = usb(machine, "1-2", 4)
    machine.node_of(directory + "/1-2:1.0/video4linux/video3", "video3")
    machine.file("/dev/video0")
    discover = {"usb": [{"vendor": "0403"}], "nodes": [{"path": "/dev/video*"}]}
    (device,) = machine.find(discover)
    assert [node.path for node in device.nodes] == ["/dev/video3"]
    machine.remove("/dev/video3")
    assert machine.find(discover) == []


def test_a_usb_device_without_a_node_is_none_yet_and_says_so(machine: Machine) -> None:
    machine.on_bus("usb", HUB + "/1-2", idVendor="0403", idProduct="6001")
    discover = {"usb": [{"vendor": "0403"}]}
    assert machine.find(discover) == []
    assert machine.left_out(discover) == [
        ("usb-0403-6001-1-2", "1-2 matched, but has no device node: no driver is bound to it")
    ]
    assert machine.left_out({**discover, "exclude": ["1-2"]}) == []
    for number, driver in enumerate(("ftdi_sio", "cdc_acm")):
        machine.on_bus("usb", HUB + "/1-2/1-2:1.%d" % number, bInterfaceNumber="00")
        machine.driven_by(HUB + "/1-2/1-2:1.%d" % number, driver, "usb")
    ((_device, why),) = machine.left_out(discover)
    assert why == "1-2 matched, but has no device node: its drivers are ftdi_sio, cdc_acm"


def pci(machine: Machine, address: str, numa_node: str = "0", **attributes: str) -> str:
    directory = "pci0000:00/%s" % address
    machine.on_bus(
        "pci",
        directory,
        **{"vendor": "0x10de", "device": "0x1eb8", "class": "0x030200", "numa_node": numa_node, **attributes},
    )
    return directory


def test_pci_by_vendor_device_and_class_with_its_numa_node(machine: Machine) -> None:
    directory = pci(machine, "0000:3b:00.0", numa_node="1")
    machine.node_of(directory + "/drm/card1", "dri/card1")
    machine.node_of(directory + "/drm/renderD129", "dri/renderD129")
    network = pci(machine, "0000:00:02.0", numa_node="-1", **{"class": "0x020000"})
    machine.node_of(network + "/ptp/ptp0", "ptp0")
    (device,) = machine.find({"pci": [{"vendor": "10de", "class_code": "0302"}]})
    assert (device.id, device.numa_node) == ("pci-0000:3b:00.0", 1)
    assert [node.path for node in device.nodes] == ["/dev/dri/card1", "/dev/dri/renderD129"]
    both = machine.find({"pci": [{"device": "1eb8"}]})
    assert [(d.id, d.numa_node) for d in both] == [("pci-0000:00:02.0", None), ("pci-0000:3b:00.0", 1)]
    assert machine.find({"pci": [{"device": "1eb8"}], "exclude": ["0000:*"]}) == []
    assert [d.id for d in machine.find({"pci": [{"class_code": "02"}]})] == ["pci-0000:00:02.0"]


def test_pci_with_the_node_of_its_iommu_group(machine: Machine) -> None:
    directory = pci(machine, "0000:3b:00.0")
    machine.link("/sys/devices/%s/iommu_group" % directory, "../../../kernel/iommu_groups/42")
    machine.file("/dev/vfio/42")
    machine.file("/dev/vfio/vfio")
    pci(machine, "0000:3c:00.0")
    machine.driven_by(pci(machine, "0000:3d:00.0"), "nvidia")
    machine.link("/sys/devices/pci0000:00/0000:3d:00.0/iommu_group", "../../../kernel/iommu_groups/43")
    nodes = [{"path": "/dev/vfio/{iommu_group}"}, {"path": "/dev/vfio/vfio"}]
    (device,) = machine.find({"pci": [{"vendor": "10de"}], "nodes": nodes})
    assert device.properties["iommu_group"] == "42"
    assert [node.path for node in device.nodes] == ["/dev/vfio/42", "/dev/vfio/vfio"]
    lacks = "has no iommu_group for /dev/vfio/{iommu_group}: no driver is bound to it"
    assert machine.left_out({"pci": [{"vendor": "10de"}], "nodes": nodes}) == [
        ("pci-0000:3c:00.0", "0000:3c:00.0 matched, but " + lacks),
        ("pci-0000:3d:00.0", "0000:3d:00.0 matched, but has no /dev/vfio/43: its driver is nvidia"),
    ]


def test_what_hangs_on_a_usb_controller_or_a_bridge_is_not_theirs(machine: Machine) -> None:
    controller = pci(machine, "0000:00:14.0")
    machine.on_bus("usb", controller + "/usb1", idVendor="1d6b", idProduct="0002", devname="bus/usb/001/001")
    machine.on_bus("pci", controller + "/0000:01:00.0", vendor="0x1", device="0x2", **{"class": "0x3"})
    machine.node_of(controller + "/0000:01:00.0/nvme/nvme0", "nvme0")
    (device,) = machine.find({"pci": [{"vendor": "10de"}]}, env={"PCI_{index}": "{address}"})
    assert device.nodes == ()


def test_a_scalable_function_is_not_a_part_of_its_physical_function(machine: Machine) -> None:
    """Its nodes are its own, and udev's selectors find them."""
    directory = pci(machine, "0000:08:00.0", vendor="0x15b3")
    machine.node_of(directory + "/infiniband_verbs/uverbs0", "infiniband/uverbs0")
    for number in (2, 3):
        function = "%s/mlx5_core.sf.%d" % (directory, number)
        machine.link("/sys/devices/%s/subsystem" % function, "/sys/bus/auxiliary")
        machine.node_of("%s/infiniband_verbs/uverbs%d" % (function, number), "infiniband/uverbs%d" % number)
        link = "/sys/class/infiniband_verbs/uverbs%d" % number
        machine.link(link, "../../devices/%s/infiniband_verbs/uverbs%d" % (function, number))
    card = {"pci": [{"vendor": "15b3"}]}
    (device,) = machine.find(card)
    assert [node.path for node in device.nodes] == ["/dev/infiniband/uverbs0"]
    devpath = "/devices/pci0000:00/*/mlx5_core.sf.*/infiniband_verbs/uverbs*"
    parts = {"udev": [{"subsystem": "infiniband_verbs", "properties": {"DEVPATH": devpath}}]}
    resources = [resource(card, "a.b/card"), resource(parts, "a.b/sf")]
    for ordered in (resources, resources[::-1]):
        found = discover(ordered, str(machine.path))
        assert [[node.path for node in each.nodes] for each in found["a.b/sf"].devices] == [
            ["/dev/infiniband/uverbs2"],
            ["/dev/infiniband/uverbs3"],
        ]
        assert [each.id for each in found["a.b/card"].devices] == ["pci-0000:08:00.0"]


def test_a_mediated_device_is_not_a_part_of_its_card(machine: Machine) -> None:
    directory = pci(machine, "0000:3b:00.0")
    machine.node_of(directory + "/drm/card1", "dri/card1")
    vgpu = directory + "/b1a5ae0e-4d6b-4b5c-8f6c-0d2f3c4b5a69"
    machine.link("/sys/devices/%s/subsystem" % vgpu, "/sys/bus/mdev")
    machine.node_of(vgpu + "/vfio-dev/vfio3", "vfio/devices/vfio3")
    (device,) = machine.find({"pci": [{"vendor": "10de"}]})
    assert [node.path for node in device.nodes] == ["/dev/dri/card1"]


def test_the_children_of_a_device_on_other_buses_are_its_own(machine: Machine) -> None:
    """Such as the disk of a virtio function."""
    directory = pci(machine, "0000:00:04.0", vendor="0x1af4")
    machine.link("/sys/devices/%s/virtio1/subsystem" % directory, "/sys/bus/virtio")
    machine.node_of(directory + "/virtio1/block/vda", "vda")
    (device,) = machine.find({"pci": [{"vendor": "1af4"}]})
    assert [node.path for node in device.nodes] == ["/dev/vda"]


def test_a_function_without_a_node_is_left_out_with_its_driver_as_usb_does(machine: Machine) -> None:
    """The driver of an accelerator may be missing, or may not have made its node yet."""
    hailo = {"pci": [{"vendor": "1e60", "device": "2864"}]}
    directory = pci(machine, "0000:01:00.0", vendor="0x1e60", device="0x2864")
    bare = "0000:01:00.0 matched, but has no device node: "
    assert machine.find(hailo) == []
    assert machine.left_out(hailo) == [("pci-0000:01:00.0", bare + "no driver is bound to it")]
    machine.driven_by(directory, "hailo")
    assert machine.left_out(hailo) == [("pci-0000:01:00.0", bare + "its driver is hailo")]
    machine.node_of(directory + "/hailo_chardev/hailo0", "hailo0")
    assert [[node.path for node in device.nodes] for device in machine.find(hailo)] == [["/dev/hailo0"]]
    assert machine.left_out(hailo) == []


@pytest.mark.parametrize(
    "gives",
    [
        {"env": {"VF_{index}": "{address}"}},
        {"joined_env": {"PCIDEVICE_VF": "{address}"}},
        {"annotations": {"example.com/vf-{index}": "{address}"}},
        {"pre_start": {"command": ["/usr/local/bin/bind"]}},
        {"container_edits": {"env": ["VF=yes"]}},
    ],
    ids=lambda gives: next(iter(gives)),
)
def test_a_function_without_a_node_is_offered_if_a_container_gets_something_else(
    machine: Machine, gives: dict[str, Any]
) -> None:
    pci(machine, "0000:3b:02.0")
    virtual = {"pci": [{"vendor": "10de"}]}
    assert machine.find(virtual) == []
    assert [device.id for device in machine.find(virtual, **gives)] == ["pci-0000:3b:02.0"]


@pytest.mark.parametrize("method", ["usb", "pci"])
def test_a_device_whose_optional_nodes_are_all_missing_gives_nothing(machine: Machine, method: str) -> None:
    if method == "usb":
        directory = usb(machine, "1-2", 4)
        name = "1-2"
    else:
        directory, name = pci(machine, "0000:3b:00.0", vendor="0x0403"), "0000:3b:00.0"
        machine.node_of(directory + "/drm/card1", "dri/card1")
    machine.driven_by(directory, "x")
    discover = {method: [{"vendor": "0403"}], "nodes": [{"path": "/dev/video*", "optional": True}]}
    assert machine.find(discover) == []
    ((_id, why),) = machine.left_out(discover)
    assert why.startswith(f"{name} matched, but has no device node that discover.nodes selects")
    machine.node_of(directory + "/video4linux/video3", "video3")
    assert [[node.path for node in device.nodes] for device in machine.find(discover)] == [["/dev/video3"]]


def test_what_a_device_says_of_itself_makes_no_folders_in_a_container(machine: Machine) -> None:
    for port, serial in (("1-1", "../../etc"), ("1-2", "..")):
        directory = "pci0000:00/usb1/" + port
        machine.on_bus("usb", directory, idVendor="0bda", idProduct="2838", serial=serial, devname="usb/" + port)
    found = machine.find(
        {
            "usb": [{"vendor": "0bda"}],
            "nodes": [{"path": "/dev/usb/*", "container_path": "/dev/sdr/{serial}"}],
        }
    )
    assert [[node.path for node in device.nodes] for device in found] == [["/dev/sdr/.._.._etc"], ["/dev/usb/1-2"]]
