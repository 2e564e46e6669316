"""All resources of a node: a device belongs to one of them."""

from node_device_plugin.declaration import parse_resources
from node_device_plugin.discovery import discover, with_discovered

from .conftest import Machine


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
            {"name": "a.b/x0", "devices": [{"id": "x0"}]},
        ]
    )
    found = discover(resources, str(machine.path))
    assert list(found) == ["a.b/by-id", "a.b/all"]
    assert [device.id for device in found["a.b/by-id"].devices] == ["by-id-two"]
    assert [device.id for device in found["a.b/all"].devices] == ["tty1"]
    assert [(device.id, why) for device, why in found["a.b/all"].left_out] == [
        ("tty0", "/dev/tty0 is a node of a.b/tty0=mine"),
        ("tty2", "/dev/tty2 is a node of a.b/by-id=by-id-two"),
        ("x0", "a.b/x0 has a device of this id"),
    ]


def test_declared_devices_keep_their_places(machine: Machine) -> None:
    machine.file("/dev/a")
    (one,) = parse_resources([{"name": "a.b/cc", "devices": [{"id": "z"}], "discover": {"paths": ["/dev/a"]}}])
    found = discover([one], str(machine.path))["a.b/cc"].devices
    assert [device.id for device in with_discovered(one, found).devices] == ["z", "a"]
