"""IOMMU groups for VFIO, in an injected sysfs."""

from typing import Any

import pytest

from node_device_plugin.declaration import parse_resources
from node_device_plugin.declaration.env import allocate_env

from .conftest import Machine, discover, resource
from .test_buses import pci

GPU, AUDIO = "0000:01:00.0", "0000:01:00.1"
NVIDIA = {"vfio": [{"vendor": "10de"}]}


def function(machine: Machine, address: str, group: str, driver: str = "vfio-pci", **attributes: str) -> None:
    """A PCI function in an IOMMU group, bound to a driver where it has one."""
    directory = pci(machine, address, **attributes)
    machine.link("/sys/devices/%s/iommu_group" % directory, "../../../kernel/iommu_groups/" + group)
    machine.link("/sys/kernel/iommu_groups/%s/devices/%s" % (group, address), "../../../../devices/" + directory)
    if driver:
        machine.driven_by(directory, driver)


@pytest.fixture
def card(machine: Machine) -> Machine:
    """A machine with a card of two functions in group 12, below a bridge, and VFIO's nodes."""
    function(machine, "0000:00:01.0", "12", "pcieport", vendor="0x8086", **{"class": "0x060400"})
    function(machine, GPU, "12", numa_node="1")
    function(machine, AUDIO, "12", device="0x10f8", **{"class": "0x040300"})
    machine.file("/dev/vfio/12")
    machine.file("/dev/vfio/vfio")
    return machine


def why(machine: Machine, discover: Any = NVIDIA) -> str:
    """The reason for the only device that is left out."""
    assert machine.find(discover) == []
    ((_id, reason),) = machine.left_out(discover)
    return reason


def test_a_group_of_two_functions_is_one_device(card: Machine) -> None:
    (device,) = card.find(NVIDIA)
    assert (device.id, device.numa_node, device.attributes.driver) == ("vfio-" + GPU, 1, "vfio-pci")
    assert [node.path for node in device.nodes] == ["/dev/vfio/12", "/dev/vfio/vfio"]
    assert device.properties == {
        "address": GPU,
        "addresses": GPU + "," + AUDIO,
        "iommu_group": "12",
        "vendor": "10de",
        "device": "1eb8",
        "class_code": "030200",
    }
    (audio,) = card.find({"vfio": [{"class_code": "0403"}]})
    assert (audio.id, audio.properties["addresses"]) == ("vfio-" + AUDIO, AUDIO)
    # The bridge is in the group, and belongs to it.
    (device,) = card.find({"vfio": [{"vendor": "8086"}, {"vendor": "10de"}]})
    assert device.properties["address"] == GPU
    for excluded in (AUDIO, "/dev/vfio/12"):
        assert card.find({"vfio": [{"class_code": "0302"}], "exclude": [excluded]}) == []


def test_the_id_outlives_another_group_number(card: Machine) -> None:
    for address in (GPU, AUDIO):
        function(card, address, "7")
    card.file("/dev/vfio/7")
    (device,) = card.find(NVIDIA)
    assert (device.id, device.nodes[0].host_path) == ("vfio-" + GPU, "/dev/vfio/7")


def test_the_lowest_address_is_the_lowest_hexadecimal_number(card: Machine) -> None:
    for address in ("0000:9f:00.0", "0000:10:00.0"):
        function(card, address, "20", vendor="0x15b3")
    card.file("/dev/vfio/20")
    assert [device.id for device in card.find({"vfio": [{"vendor": "15b3"}]})] == ["vfio-0000:10:00.0"]


def test_every_group_gets_the_common_node(card: Machine) -> None:
    function(card, "0000:02:00.0", "13", "mlx5-vfio-pci")
    card.file("/dev/vfio/13")
    found = card.find(NVIDIA)
    assert [[node.path for node in device.nodes] for device in found] == [
        ["/dev/vfio/12", "/dev/vfio/vfio"],
        ["/dev/vfio/13", "/dev/vfio/vfio"],
    ]


@pytest.mark.parametrize(
    ("selector", "driver", "reason"),
    [
        ({"class_code": "0302"}, "snd_hda_intel", "is bound to snd_hda_intel"),
        ({"vendor": "10de"}, "snd_hda_intel", "is bound to snd_hda_intel"),
        # The kernel lets a group go whose other functions have no driver; but who gets such a function cannot use it.
        ({"class_code": "0302"}, "", None),
        ({"vendor": "10de"}, "", "has no driver"),
        ({"class_code": "0302"}, "pci-stub", None),
        ({"vendor": "10de"}, "pci-stub", "is bound to pci-stub"),
    ],
)
def test_a_group_in_use_says_by_what(card: Machine, selector: Any, driver: str, reason: str) -> None:
    card.remove("/sys/devices/pci0000:00/%s/driver" % AUDIO)
    if driver:
        card.driven_by("pci0000:00/" + AUDIO, driver)
    if reason is None:
        assert len(card.find({"vfio": [selector]})) == 1
    else:
        assert why(card, {"vfio": [selector]}) == (
            "%s of IOMMU group 12 %s: bind it to vfio-pci, for example with driverctl set-override %s vfio-pci"
            % (AUDIO, reason, AUDIO)
        )


def test_what_is_missing_is_said(card: Machine) -> None:
    card.remove("/dev/vfio/vfio")
    assert why(card) == GPU + " matched, but has no /dev/vfio/vfio: its driver is vfio-pci"
    card.remove("/dev/vfio/12")
    assert why(card) == GPU + " matched, but has no /dev/vfio/12: its driver is vfio-pci"
    for address in (GPU, AUDIO):
        card.remove("/sys/devices/pci0000:00/%s/iommu_group" % address)
    (_gpu, first), (_audio, second) = card.left_out(NVIDIA)
    assert first == (
        GPU + " has no IOMMU group: enable the IOMMU in the firmware, and on Intel boot with intel_iommu=on"
    )
    assert second.startswith(AUDIO + " has no IOMMU group")


@pytest.mark.parametrize("has_group", [True, False])
def test_a_card_that_is_divided_into_vgpus_says_so(card: Machine, has_group: bool) -> None:
    """Neither the firmware nor another driver helps: the IOMMU groups are those of the mediated devices."""
    directory = "pci0000:00/" + GPU
    card.driven_by(directory, "nvidia")
    card.file("/sys/devices/%s/mdev_supported_types/nvidia-63/available_instances" % directory, "2")
    if not has_group:
        for address in (GPU, AUDIO):
            card.remove("/sys/devices/pci0000:00/%s/iommu_group" % address)
    one = {"vfio": [{"class_code": "0302"}]}
    says = GPU + " is divided into mediated devices (vGPUs) by driver nvidia"
    assert why(card, one) == says + ", of which none exists: create one, and discover its group's node by paths"
    for number, uuid in enumerate(("b1a5ae0e-4d6b-4b5c-8f6c-0d2f3c4b5a69", "c2b6bf1f-4d6b-4b5c-8f6c-0d2f3c4b5a69")):
        card.link("/sys/devices/%s/%s/iommu_group" % (directory, uuid), "/sys/kernel/iommu_groups/%d" % (71 + number))
        card.link("/sys/devices/%s/%s/mdev_type" % (directory, uuid), "../mdev_supported_types/nvidia-63")
    nodes = "/dev/vfio/71, /dev/vfio/72"
    assert why(card, one) == f"{says}: to offer them instead, discover their groups' nodes by paths: {nodes}"
    # The reason's way works.
    card.file("/dev/vfio/71")
    card.file("/dev/vfio/72")
    by_path = card.find({"paths": ["/dev/vfio/7*"], "nodes": [{"path": "/dev/vfio/vfio"}]})
    assert [[node.path for node in each.nodes] for each in by_path] == [
        ["/dev/vfio/71", "/dev/vfio/vfio"],
        ["/dev/vfio/72", "/dev/vfio/vfio"],
    ]


def test_vfio_without_an_iommu_is_named(card: Machine) -> None:
    card.remove("/dev/vfio/12")
    card.file("/dev/vfio/noiommu-12")
    assert why(card) == (
        GPU + " matched, but has no /dev/vfio/12: its driver is vfio-pci; VFIO offers it without an IOMMU, with access "
        "to all memory, as /dev/vfio/noiommu-12: enable the IOMMU in the firmware, or discover this node by paths"
    )
    assert [each.id for each in card.find({"paths": ["/dev/vfio/noiommu-*"]})] == ["vfio-noiommu-12"]


def test_a_function_without_a_group_is_told_what_vfio_offers(card: Machine) -> None:
    for address in (GPU, AUDIO):
        card.remove("/sys/devices/pci0000:00/%s/iommu_group" % address)
    one = {"vfio": [{"class_code": "0302"}]}
    card.file("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "N\n")
    firmware = GPU + " has no IOMMU group: enable the IOMMU in the firmware, and on Intel boot with intel_iommu=on"
    assert why(card, one) == firmware
    card.file("/sys/module/vfio/parameters/enable_unsafe_noiommu_mode", "Y\n")
    assert why(card, one) == (
        f"{firmware}; enable_unsafe_noiommu_mode is set, so VFIO also offers it without an IOMMU, once vfio-pci has it"
    )
    card.node_of("pci0000:00/%s/vfio-dev/vfio0" % GPU, "vfio/devices/vfio0")
    assert why(card, one).startswith(
        GPU + " has no IOMMU group; VFIO offers it as a character device, /dev/vfio/devices/vfio0: use discover.pci"
    )


def test_a_character_device_of_vfio_is_named(card: Machine) -> None:
    """The kernel was built without VFIO_GROUP."""
    card.remove("/dev/vfio/12")
    card.node_of("pci0000:00/%s/vfio-dev/vfio0" % GPU, "vfio/devices/vfio0")
    card.file("/dev/iommu")
    advice = "use discover.pci with nodes: [/dev/vfio/devices/*, /dev/iommu]"
    assert why(card) == (
        GPU + " matched, but has no /dev/vfio/12: its driver is vfio-pci; VFIO offers it as a character device, "
        "/dev/vfio/devices/vfio0: " + advice
    )
    nodes = [{"path": "/dev/vfio/devices/*"}, {"path": "/dev/iommu"}]
    (device,) = card.find({"pci": [{"class_code": "0302"}], "nodes": nodes})
    assert [node.path for node in device.nodes] == ["/dev/vfio/devices/vfio0", "/dev/iommu"]


def test_by_pci_and_nodes_a_group_is_one_device_too(card: Machine) -> None:
    """Else the second function is a device whose pod finds the group in use."""
    by_nodes = {"pci": NVIDIA["vfio"], "nodes": [{"path": "/dev/vfio/{iommu_group}"}, {"path": "/dev/vfio/vfio"}]}
    assert [device.id for device in card.find(by_nodes)] == ["pci-" + GPU]
    assert card.left_out(by_nodes) == [
        (
            "pci-" + AUDIO,
            "/dev/vfio/12 is already a node of example.com/dev=pci-%s: use discover.vfio, which makes one device of an "
            "IOMMU group" % GPU,
        )
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"paths": ["/dev/vfio/[0-9]*"]},
        {"pci": [{"vendor": "10de", "class_code": "04"}], "nodes": [{"path": "/dev/vfio/{iommu_group}"}]},
        {"vfio": [{"class_code": "04"}]},
    ],
)
def test_a_group_belongs_to_one_resource(card: Machine, other: Any) -> None:
    first, second = resource({"vfio": [{"class_code": "03"}]}, "a.b/gpu"), resource(other, "a.b/other")
    found = discover([first, second], str(card.path))
    assert [device.id for device in found["a.b/gpu"].devices] == ["vfio-" + GPU]
    assert found["a.b/other"].devices == ()
    ((_device, reason),) = found["a.b/other"].left_out
    assert reason == "/dev/vfio/12 is already a node of a.b/gpu=vfio-" + GPU
    turned = discover([second, first], str(card.path))
    assert [len(turned[name].devices) for name in ("a.b/other", "a.b/gpu")] == [1, 0]


def test_a_virtual_machine_is_told_the_addresses(card: Machine) -> None:
    raw = {"name": "a.b/gpu", "discover": NVIDIA, "joined_env": {"PCI_RESOURCE_A_B_GPU": "{address}"}}
    (declared,) = parse_resources([raw])
    function(card, "0000:02:00.0", "13")
    card.file("/dev/vfio/13")
    found = discover([declared], str(card.path))["a.b/gpu"].devices
    assert allocate_env(declared, found) == {"PCI_RESOURCE_A_B_GPU": GPU + ",0000:02:00.0"}
