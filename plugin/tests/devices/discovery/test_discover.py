"""All resources of a node: a device belongs to one of them."""

import os

from node_device_plugin.declaration import cdi, parse_resources

from .conftest import Machine, discover


def test_what_is_declared_comes_first_then_the_resource_further_up(machine: Machine) -> None:
    for name in ("tty0", "tty1", "tty2", "x0"):
        machine.file("/dev/" + name)
    machine.link("/dev/by-id/two", "../tty2")
    resources = parse_resources(
        [
            {"name": "a.b/by-id", "discover": {"paths": ["/dev/by-id/*"]}},
            {"name": "a.b/all", "discover": {"paths": ["/dev/tty*", "/dev/x*"]}},
            {
                "name": "a.b/tty0",
                "devices": [{"id": "mine", "nodes": [{"path": "/dev/com", "host_path": "/dev/tty0"}]}],
            },
            {"name": "a.b/x0", "devices": [{"id": "x0"}], "env": {"X0": "x"}},
        ]
    )
    found = discover(resources, str(machine.path))
    assert list(found) == ["a.b/by-id", "a.b/all"]
    assert [device.id for device in found["a.b/by-id"].devices] == ["by-id-two"]
    assert [device.id for device in found["a.b/all"].devices] == ["tty1"]
    assert [(device.id, why) for device, why in found["a.b/all"].left_out] == [
        ("tty0", "/dev/tty0 is already a node of a.b/tty0=mine"),
        ("tty2", "/dev/tty2 is already a node of a.b/by-id=by-id-two"),
        (
            "x0",
            "a.b/x0 already has a device with this id: if the devices differ, set discover.id_prefix, e.g. all-, or "
            "exclude one",
        ),
    ]


def test_a_prefix_makes_ids_differ(machine: Machine) -> None:
    machine.file("/dev/x0")
    declared = {"name": "a.b/x0", "devices": [{"id": "x0"}], "env": {"X0": "x"}}
    (found,) = discover(
        parse_resources([declared, {"name": "a.b/all", "discover": {"paths": ["/dev/x*"], "id_prefix": "all-"}}]),
        str(machine.path),
    ).values()
    assert [device.id for device in found.devices] == ["all-x0"]


def test_a_declared_link_is_the_node_that_it_leads_to(machine: Machine) -> None:
    """Else the same device would be given away under two ids."""
    for name in ("ttyUSB0", "ttyUSB1"):
        machine.file("/dev/" + name)
    machine.link("/dev/serial/by-id/gps", "../../ttyUSB0")
    declared = {"id": "gps", "nodes": [{"path": "/dev/gps", "host_path": "/dev/serial/by-id/gps"}]}
    resources = parse_resources(
        [
            {"name": "a.b/serial", "discover": {"paths": ["/dev/ttyUSB*"]}},
            {"name": "a.b/gps", "devices": [declared]},
        ]
    )
    found = discover(resources, str(machine.path))["a.b/serial"]
    assert [device.id for device in found.devices] == ["ttyUSB1"]
    assert [(device.id, why) for device, why in found.left_out] == [
        ("ttyUSB0", "/dev/ttyUSB0 is already a node of a.b/gps=gps")
    ]


def test_a_node_that_all_are_given_is_none_s_own(machine: Machine) -> None:
    """/dev/vfio/vfio goes to everybody, whether it stands before or after a device's own node."""
    for address, group in (("0000:3b:00.0", "12"), ("0000:3b:00.1", "13")):
        machine.on_bus("pci", "pci0000:3a/" + address, vendor="0x10de", device="0x1eb8", **{"class": "0x030200"})
        machine.link("/sys/devices/pci0000:3a/%s/iommu_group" % address, "../../../kernel/iommu_groups/" + group)
        machine.file("/dev/vfio/" + group)
    machine.file("/dev/vfio/vfio")
    common, own = {"path": "/dev/vfio/vfio"}, {"path": "/dev/vfio/{iommu_group}"}
    for nodes in ([common, own], [own, common]):
        resources = parse_resources(
            [
                {"name": "a.b/vf", "discover": {"pci": [{"vendor": "10de"}], "nodes": nodes}},
                {"name": "a.b/same", "discover": {"paths": ["/dev/vfio/1*"]}},
                {"name": "a.b/vfio", "devices": [{"id": "vfio", "nodes": [common]}]},
            ]
        )
        found = discover(resources, str(machine.path))
        assert [device.id for device in found["a.b/vf"].devices] == ["pci-0000:3b:00.0", "pci-0000:3b:00.1"]
        assert [why for _, why in found["a.b/same"].left_out] == [
            "/dev/vfio/12 is already a node of a.b/vf=pci-0000:3b:00.0",
            "/dev/vfio/13 is already a node of a.b/vf=pci-0000:3b:00.1",
        ]


def test_of_two_paths_that_would_have_one_id_the_second_is_left_out_and_said(machine: Machine) -> None:
    for path in ("/dev/dsp/a", "/dev/dsp-a", "/dev/dsp-b"):
        machine.file(path)
    (one,) = parse_resources([{"name": "a.b/cc", "discover": {"paths": ["/dev/dsp/*", "/dev/dsp-*"]}}])
    found = discover([one], str(machine.path))["a.b/cc"]
    assert [(device.id, device.nodes[0].path) for device in found.devices] == [
        ("dsp-a", "/dev/dsp/a"),
        ("dsp-b", "/dev/dsp-b"),
    ]
    assert [(device.nodes[0].path, why) for device, why in found.left_out] == [
        ("/dev/dsp-a", "/dev/dsp/a already has this id")
    ]


def test_every_node_of_a_usb_device_is_its_own(machine: Machine) -> None:
    """A receiver by its ids, and whatever serial port there is: the receiver's port is not given away twice."""
    usb = "pci0000:00/0000:00:14.0/usb1/1-1"
    machine.on_bus("usb", usb, idVendor="1546", idProduct="01a7", devname="bus/usb/001/002")
    machine.file("/sys/devices/%s/1-1:1.0/uevent" % usb)
    machine.node_of(usb + "/1-1:1.0/tty/ttyACM0", "ttyACM0")
    machine.file("/dev/ttyACM1")
    gps = {"name": "a.b/gps", "discover": {"usb": [{"vendor": "1546"}]}}
    serial = {"name": "a.b/serial", "discover": {"paths": ["/dev/ttyACM*"]}}
    found = discover(parse_resources([gps, serial]), str(machine.path))
    assert [device.id for device in found["a.b/gps"].devices] == ["usb-1546-01a7-1-1"]
    assert [device.id for device in found["a.b/serial"].devices] == ["ttyACM1"]
    assert [(device.id, why) for device, why in found["a.b/serial"].left_out] == [
        ("ttyACM0", "/dev/ttyACM0 is already a node of a.b/gps=usb-1546-01a7-1-1")
    ]
    found = discover(parse_resources([serial, gps]), str(machine.path))
    assert [device.id for device in found["a.b/serial"].devices] == ["ttyACM0", "ttyACM1"]
    assert [why for _, why in found["a.b/gps"].left_out] == ["/dev/ttyACM0 is already a node of a.b/serial=ttyACM0"]
    # What it does not give away is nobody's.
    chosen = {**gps, "discover": {**gps["discover"], "nodes": [{"path": "/dev/bus/usb/*/*"}]}}
    found = discover(parse_resources([serial, chosen]), str(machine.path))
    assert [len(each.devices) for each in found.values()] == [2, 1]


def test_one_node_makes_one_device_of_a_resource_too(machine: Machine) -> None:
    """Else the second pod that gets it would find it in use."""
    machine.on_bus("usb", "pci0000:00/usb1/1-1", idVendor="1546", idProduct="01a7", devname="ttyACM0")
    both = {"usb": [{"vendor": "1546"}], "paths": ["/dev/ttyACM*"]}
    assert [device.id for device in machine.find(both)] == ["ttyACM0"]
    assert machine.left_out(both) == [
        ("usb-1546-01a7-1-1", "/dev/ttyACM0 is already a node of example.com/dev=ttyACM0")
    ]


def test_a_device_that_cannot_be_offered_takes_no_id_from_another(machine: Machine) -> None:
    machine.link("/dev/dsp/a", "gone")
    machine.file("/dev/dsp-a")
    both = {"paths": ["/dev/dsp/*", "/dev/dsp-*"]}
    assert [device.nodes[0].path for device in machine.find(both)] == ["/dev/dsp-a"]
    assert machine.left_out(both) == [("dsp-a", "/dev/dsp/a is a link to /dev/dsp/gone, which does not exist")]


def test_a_node_whose_name_is_no_text_is_left_out_and_the_others_are_given(machine: Machine) -> None:
    (one,) = parse_resources([{"name": "a.b/cc", "discover": {"paths": ["/dev/x*"]}}])
    machine.file("/dev/x1")
    with open(os.fsencode(machine.path) + b"/dev/x\xff", "wb"):
        pass
    os.symlink("gone", os.fsencode(machine.path) + b"/dev/x\xfe")
    found = discover([one], str(machine.path))["a.b/cc"]
    assert [device.id for device in found.devices] == ["x1"]
    assert [why for _, why in found.left_out] == [
        r"/dev/x\udcfe is a link to /dev/gone, which does not exist",
        r"'/dev/x\udcff' is not UTF-8, which CDI requires",
    ]
    spec = cdi.render_spec(one._replace(devices=found.devices))
    assert spec is not None
    assert cdi.serialise(spec).encode()
