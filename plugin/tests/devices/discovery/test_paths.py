"""Devices by paths: patterns, links, groups, exclusion; in an injected root, and with real device nodes."""

import os
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.cdi.links import Links
from node_device_plugin.declaration import Device
from node_device_plugin.declaration.device_plugin_api import kubelet_ids
from node_device_plugin.declaration.names import cdi_device_problem
from node_device_plugin.devices.discovery import Discoverer

from .conftest import Machine, discover, find, resource


def ids(devices: list[Device]) -> list[str]:
    return [device.id for device in devices]


def paths(device: Device) -> list[str]:
    return [node.path for node in device.nodes]


def test_order_is_as_people_count(machine: Machine) -> None:
    for name in ("ttyUSB10", "ttyUSB2", "ttyUSB0"):
        machine.file("/dev/" + name)
    machine.file("/dev/ttyUSBdir/x")
    assert ids(machine.find({"paths": ["/dev/ttyUSB*"]})) == ["ttyUSB0", "ttyUSB2", "ttyUSB10"]


def test_a_link_by_id_follows_the_device_and_keeps_its_id(machine: Machine) -> None:
    """Complaint 7 (squat#78, Akri#734): a runtime refuses a link as a device node; the host's is what it leads to."""
    machine.file("/dev/ttyUSB0")
    machine.link("/dev/serial/by-id/usb-FTDI_A50-if00", "../../ttyUSB0")
    (before,) = machine.find({"paths": ["/dev/serial/by-id/*"]})
    machine.file("/dev/ttyUSB7")
    machine.link("/dev/serial/by-id/usb-FTDI_A50-if00", "../../ttyUSB7")
    (after,) = machine.find({"paths": ["/dev/serial/by-id/*"]})
    assert before.id == after.id == "serial-by-id-usb-FTDI_A50-if00"
    assert before.nodes[0].path == after.nodes[0].path == "/dev/serial/by-id/usb-FTDI_A50-if00"
    assert (before.nodes[0].host_path, after.nodes[0].host_path) == ("/dev/ttyUSB0", "/dev/ttyUSB7")


@pytest.mark.parametrize("path", ["/dev/ttyS0", "/dev/serial/by-id/usb-A_B", "/dev/a b:", "/dev/" + "x" * 70, "/srv/d"])
def test_a_declared_short_form_has_the_id_of_the_device_that_is_found(machine: Machine, path: str) -> None:
    machine.file(path)
    (declared,) = resource({}, devices=[path]).devices
    assert ids(machine.find({"paths": [path]})) == [declared.id]


def test_links_stay_inside_of_the_root(machine: Machine) -> None:
    machine.file("/dev/real0")
    machine.link("/dev/absolute", "/dev/real0")
    machine.link("/dev/above", "../../../../dev/real0")
    machine.link("/dev/dangling", "nothing")
    machine.link("/dev/circle", "circle")
    machine.link("/alias", "dev")
    for path in ("/dev/absolute", "/dev/above", "/alias/real0"):
        (device,) = machine.find({"paths": [path]})
        assert device.nodes[0].host_path == "/dev/real0"
    assert machine.find({"paths": ["/dev/dangling", "/dev/circle"]}) == []
    assert machine.left_out({"paths": ["/dev/dangling", "/dev/c*"]}) == [
        ("circle", "/dev/circle is a link to itself, which does not exist"),
        ("dangling", "/dev/dangling is a link to /dev/nothing, which does not exist"),
    ]


def test_two_paths_to_one_node_are_one_device_by_the_first_pattern(machine: Machine) -> None:
    machine.file("/dev/sg0")
    machine.link("/dev/by-id/x", "../sg0")
    assert ids(machine.find({"paths": ["/dev/by-id/*", "/dev/sg*"]})) == ["by-id-x"]


def test_exclusion_by_the_path_and_by_what_a_link_leads_to(machine: Machine) -> None:
    for name in ("tty0", "tty1", "tty2"):
        machine.file("/dev/" + name)
    machine.link("/dev/by-id/a", "../tty1")
    found = machine.find({"paths": ["/dev/by-id/*", "/dev/tty[0-9]"], "exclude": ["/dev/tty1", "/dev/*2"]})
    assert ids(found) == ["tty0"]


def test_several_nodes_make_one_device_and_some_are_optional(machine: Machine) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "cap1-a", "cap1-b", "uvm0"):
        machine.file("/dev/" + name)
    discover = {
        "paths": ["/dev/nvidia[0-9]"],
        "nodes": [
            {"path": "/dev/nvidiactl"},
            {"path": "/dev/cap{match1}-*", "optional": True},
            {"path": "/dev/uvm{match1}", "optional": True},
        ],
    }
    zero, one = machine.find(discover)
    assert paths(zero) == ["/dev/nvidia0", "/dev/nvidiactl", "/dev/uvm0"]
    assert paths(one) == ["/dev/nvidia1", "/dev/nvidiactl", "/dev/cap1-a", "/dev/cap1-b"]
    assert zero.properties == {"match1": "0"}
    machine.remove("/dev/nvidiactl")
    assert machine.find(discover) == []
    assert machine.left_out(discover)[0] == ("nvidia0", "/dev/nvidia0 matched, but has no /dev/nvidiactl")
    beside = {"paths": ["/dev/uvm0*"], "nodes": [{"path": "/dev/x{match1}"}]}
    assert machine.left_out(beside) == [("uvm0", "/dev/uvm0 matched, but has no /dev/x")]


def test_a_container_has_the_node_where_it_is_wanted(machine: Machine) -> None:
    for name in ("ttyUSB0", "ttyUSB1", "ctl"):
        machine.file("/dev/" + name)
    machine.link("/dev/serial/by-id/usb-A", "../../ttyUSB1")

    def given(discover: dict[str, Any], **more: Any) -> list[list[tuple[str, str]]]:
        return [[(node.path, node.host_path) for node in device.nodes] for device in machine.find(discover, **more)]

    folder = {"paths": ["/dev/ttyUSB*"], "container_path": "/dev/serial/{name}"}
    assert given(folder) == [
        [("/dev/serial/ttyUSB0", "/dev/ttyUSB0")],
        [("/dev/serial/ttyUSB1", "/dev/ttyUSB1")],
    ]
    assert ids(machine.find(folder)) == ["ttyUSB0", "ttyUSB1"]
    one_name = {"paths": ["/dev/serial/by-id/*"], "container_path": "/dev/ttyUSB0"}
    assert given(one_name, container_limit=1) == [[("/dev/ttyUSB0", "/dev/ttyUSB1")]]
    with_common = {
        "paths": ["/dev/ttyUSB*"],
        "container_path": "/dev/port{match1}",
        "nodes": [{"path": "/dev/ctl", "container_path": "/dev/control"}],
    }
    assert given(with_common) == [
        [("/dev/port%d" % n, "/dev/ttyUSB%d" % n), ("/dev/control", "/dev/ctl")] for n in range(2)
    ]
    # Of several nodes of a device with one path the first is given.
    several = {"paths": ["/dev/ctl"], "nodes": [{"path": "/dev/ttyUSB*", "container_path": "/dev/tty"}]}
    assert given(several, container_limit=1) == [[("/dev/ctl", "/dev/ctl"), ("/dev/tty", "/dev/ttyUSB0")]]


def test_where_numa_is_the_preference_a_path_s_device_has_its_node(machine: Machine) -> None:
    """Otherwise a device that has no more than a path has none: it would align pods that never asked for it."""
    machine.file("/dev/infiniband/uverbs0")
    adapter = "/sys/devices/pci0000:3a/0000:3b:00.0"
    machine.link("/sys/dev/char/0:0", "../../devices/pci0000:3a/0000:3b:00.0/infiniband_verbs/uverbs0")
    machine.file(adapter + "/infiniband_verbs/uverbs0/dev", "0:0")
    discover = {"paths": ["/dev/infiniband/uverbs*"]}
    for text, numa_node in (("1\n", 1), ("0\n", 0), ("-1\n", None)):
        machine.file(adapter + "/numa_node", text)
        assert [device.numa_node for device in machine.find(discover, preference="numa")] == [numa_node]
        assert [device.numa_node for device in machine.find(discover)] == [None]
    machine.remove(adapter + "/numa_node")
    assert [device.numa_node for device in machine.find(discover, preference="numa")] == [None]
    machine.remove("/sys/dev/char/0:0")
    assert [device.numa_node for device in machine.find(discover, preference="numa")] == [None]


def test_a_wildcards_match_is_taken_literally(machine: Machine) -> None:
    machine.file("/dev/x*")
    machine.file("/dev/y1")
    assert machine.find({"paths": ["/dev/x*"], "nodes": [{"path": "/dev/y{match1}"}]}) == []


def test_what_a_container_may_do_is_the_resources(machine: Machine) -> None:
    machine.file("/dev/x")
    (device,) = machine.find({"paths": ["/dev/x"], "permissions": "r", "gid": 5, "mode": "0640"})
    node = device.nodes[0]
    assert (node.permissions, node.uid, node.gid, node.mode) == ("r", None, 5, 0o640)
    assert not device.required


@pytest.mark.parametrize("name", ["usb-Ünïcode #1", "x" * 100, "-", "a b", "a_b", "x" * 99 + "y"])
def test_ids_are_legal_and_of_a_legal_length(machine: Machine, name: str) -> None:
    machine.file("/dev/" + name)
    for replicas in (1, 100):
        one = resource({"paths": ["/dev/*"]}, replicas=replicas)
        (device,) = find(one, str(machine.path))
        assert cdi_device_problem(device.id) is None
        assert len(kubelet_ids(one, device)[-1]) <= 63


def test_what_was_made_legal_stays_apart(machine: Machine) -> None:
    for name in ("a b", "a_b", "x" * 80, "x" * 81):
        machine.file("/dev/" + name)
    found = ids(machine.find({"paths": ["/dev/*"]}))
    assert len(set(found)) == 4
    assert "a_b" in found


@pytest.mark.skipif(os.geteuid() != 0, reason="mknod needs root")
def test_real_nodes(tmp_path: Path) -> None:
    os.mknod(tmp_path / "node1", 0o20600, os.makedev(1, 3))
    os.mknod(tmp_path / "node2", 0o60600, os.makedev(7, 250))
    (tmp_path / "node3").touch()
    (tmp_path / "node4").mkdir()
    (tmp_path / "link").symlink_to("node1")
    wanted = resource({"paths": ["%s/node*" % tmp_path]})
    # A pattern may match a directory beside the nodes.
    assert [why for _device, why in discover([wanted])[wanted.name].left_out] == [
        "%s/node3 is neither a device node nor a link to one" % tmp_path
    ]
    found = find(wanted)
    assert [device.nodes[0].host_path for device in found] == [str(tmp_path / "node1"), str(tmp_path / "node2")]
    (linked,) = find(resource({"paths": ["%s/li*" % tmp_path]}))
    assert linked.nodes[0].host_path == str(tmp_path / "node1")
    assert linked.nodes[0].path == str(tmp_path / "link")


async def test_what_stays_is_not_made_anew_and_what_changes_is(machine: Machine) -> None:
    """10,000 devices that stay cost a hot-plug nothing but the look."""
    machine.file("/dev/ttyUSB0")
    machine.file("/dev/ttyUSB1")
    machine.link("/dev/by-id/x", "../ttyUSB0")
    discoverer = Discoverer(Links(), str(machine.path))

    async def look(**more: str) -> list[Device]:
        wanted = resource({"paths": ["/dev/by-id/*", "/dev/ttyUSB*"], **more})
        found = await discoverer.discover([wanted], dict)
        return list(found[wanted.name].devices)

    linked, plain = await look()
    assert [id(device) for device in await look()] == [id(linked), id(plain)]
    machine.link("/dev/by-id/x", "../ttyUSB1")
    moved, other = await look()
    assert (moved.id, moved.nodes[0].host_path, other.id) == (linked.id, "/dev/ttyUSB1", "ttyUSB0")
    # Declared in another way, nothing of before counts.
    assert {device.nodes[0].permissions for device in await look(permissions="r")} == {"r"}
    machine.remove("/dev/by-id/x")
    assert ids(await look()) == ["ttyUSB0", "ttyUSB1"]


def test_a_character_that_means_something_stands_for_itself_in_brackets(machine: Machine) -> None:
    for name in ("a[0]", "a{1}", "a*", "a?", "a^"):
        machine.file("/dev/" + name)
    for pattern, name in (("a[[]0]", "a[0]"), ("a[{]1[}]", "a{1}"), ("a[*]", "a*"), ("a[?]", "a?"), ("a[!0*?]", "a^")):
        (device,) = machine.find({"paths": ["/dev/" + pattern]})
        assert paths(device) == ["/dev/" + name]
