"""The table: what is listed, what is news, and when watchers hear of it."""

import asyncio
from typing import Any

import pytest

from node_device_plugin.declaration import Device, parse_resources
from node_device_plugin.declaration.device_plugin_api import listed_size
from node_device_plugin.devices.flap_damping import UNSTEADY
from node_device_plugin.devices.reason import kind_of
from node_device_plugin.devices.table import UNANSWERED, DeviceTable
from node_device_plugin.kubelet.device_plugin import device_list
from node_device_plugin.kubelet.device_plugin.device_list import DeviceList, Listed

(RESOURCE,) = parse_resources(
    [
        {
            "name": "example.com/dev",
            "replicas": 2,
            "devices": [{"id": "need"}, {"id": "may", "required": False}],
            "env": {"DEV_{index}": "{id}"},
        }
    ]
)
FINE = {"need": None, "may": None}


def listed(table: DeviceTable) -> tuple[Listed, ...]:
    """The entries that a kubelet gets of a table."""
    return DeviceList(table).listed()


async def test_what_is_not_required_is_left_out_until_it_was_there_once() -> None:
    table = DeviceTable(RESOURCE)
    table.update({"need": None, "may": "gone"})
    assert listed(table) == (Listed("need::0", True), Listed("need::1", True))
    assert table.reason(RESOURCE.devices[1]) == "gone"
    table.update(FINE)
    assert table.reason(RESOURCE.devices[1]) is None
    table.update({"need": None, "may": "gone"})
    assert Listed("may::0", False) in listed(table)


async def test_the_next_table_keeps_what_is_known_of_devices_that_stay_the_same() -> None:
    table = DeviceTable(RESOURCE)
    table.update({"need": "gone", "may": "gone"})
    # A device with another property may be another device.
    need, may = (device._replace(properties={"a": "b"}) for device in RESOURCE.devices)
    for devices, reasons in (
        (RESOURCE.devices, ["gone", "gone"]),
        ((need, may), ["the device was not checked yet"] * 2),
    ):
        after = DeviceTable(RESOURCE._replace(devices=devices), former=table)
        assert [after.reason(device) for device in devices] == reasons


async def test_what_is_required_is_listed_from_the_start_and_says_why_it_is_unhealthy() -> None:
    table = DeviceTable(RESOURCE)
    news = table.update({"need": "/dev/x: gone", "may": "gone"})
    assert [(device.id, reason) for device, reason in news] == [("need", "/dev/x: gone")]
    assert listed(table) == (Listed("need::0", False), Listed("need::1", False))
    assert table.reason(RESOURCE.devices[0]) == "/dev/x: gone"
    assert table.update({"need": "/dev/x: gone", "may": "gone"}) == []


async def test_a_device_is_unhealthy_until_its_command_has_answered_and_then_stays_as_it_was() -> None:
    table = DeviceTable(RESOURCE)
    unanswered = dict.fromkeys(FINE, UNANSWERED)
    assert [(device.id, reason) for device, reason in table.update(unanswered)] == [("need", UNANSWERED)]
    assert listed(table) == (Listed("need::0", False), Listed("need::1", False))
    table.update(FINE)
    assert table.update(unanswered) == []
    assert [reason for _, reason in table.shown()] == [None, None]


async def test_a_watcher_hears_of_every_change_that_shows_and_of_nothing_else() -> None:
    table = DeviceTable(RESOURCE)
    table.update(FINE)
    heard: list[Any] = []

    async def watch() -> None:
        last, offered = None, DeviceList(table)
        while True:
            last = await offered.changed(last)
            heard.append([entry.healthy for entry in last])

    watcher = asyncio.create_task(watch())
    for reasons in (FINE, {**FINE, "need": "gone"}, {**FINE, "need": "still gone"}, FINE):
        table.update(reasons)
        await asyncio.sleep(0.01)
    watcher.cancel()
    assert heard == [[True] * 4, [False, False, True, True], [True] * 4]


def discovered(*ids: str, path: str = "/dev/null") -> list[Device]:
    (resource,) = parse_resources(
        [{"name": "example.com/xx", "devices": [{"id": each, "nodes": [{"path": path}]} for each in ids]}]
    )
    return list(resource.devices)


def all_fine(table: DeviceTable) -> None:
    table.update({device.id: None for device in table.resource.devices})


def states(table: DeviceTable) -> dict[str, bool]:
    return {entry.kubelet_id: entry.healthy for entry in listed(table)}


async def test_discovered_devices_come_after_the_declared_ones_in_natural_order() -> None:
    (declared,) = parse_resources([{"name": "example.com/dev", "devices": [{"id": "zz"}], "env": {"DEV": "x"}}])
    table = DeviceTable(declared)
    table.set_devices(discovered("tty10", "tty2", "by-id-9"))
    assert listed(table) == ()
    all_fine(table)
    assert list(states(table)) == ["zz", "by-id-9", "tty2", "tty10"]


async def test_a_device_that_vanishes_stays_listed_and_comes_back() -> None:
    (empty,) = parse_resources([{"name": "example.com/dev"}])
    table = DeviceTable(empty)
    table.set_devices(discovered("a", "b"))
    all_fine(table)
    news = table.set_devices(discovered("b"))
    assert [(device.id, reason) for device, reason in news] == [("a", "gone")]
    # A check that began before it went changes nothing.
    all_fine(table)
    assert states(table) == {"a": False, "b": True}
    # It may still be there, but not be of use.
    (gone,) = discovered("a")
    ((_, reason),) = table.set_devices(discovered("b"), [(gone, "it is bound to another driver")])
    assert reason == "gone: it is bound to another driver"
    assert kind_of(reason) == "gone"
    (back, _) = discovered("a", "b", path="/dev/zero")
    table.set_devices([back, *discovered("b")])
    all_fine(table)
    assert states(table) == {"a": True, "b": True}
    # The path under a stable id is the one that it has now.
    assert table.resource.devices[0].nodes[0].path == "/dev/zero"


async def test_a_table_that_follows_another_knows_what_flaps() -> None:
    now = [0.0]
    first = DeviceTable(RESOURCE, recovery_delay=10, clock=lambda: now[0])
    for reason in (None, "gone", None, "gone"):
        first.update({"need": reason})
    second = DeviceTable(RESOURCE, recovery_delay=10, clock=lambda: now[0], former=first)
    assert second.reason(RESOURCE.devices[0]) == "gone"
    second.update(FINE)
    assert second.reason(RESOURCE.devices[0]) == UNSTEADY
    now[0] = 10.0
    second.update(FINE)
    assert second.reason(RESOURCE.devices[0]) is None


async def test_an_id_that_is_declared_is_no_discovered_device() -> None:
    table = DeviceTable(RESOURCE)
    table.set_devices(discovered("need", "d"))
    all_fine(table)
    assert [device.id for device in table.resource.devices] == ["need", "may", "d"]
    assert table.resource.devices[0] is RESOURCE.devices[0]


async def test_what_is_gone_takes_its_place_in_the_list(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays listed, so it counts: a list that is too long loses the whole resource."""
    (empty,) = parse_resources([{"name": "example.com/dev"}])
    first, second = discovered("b", "a")
    monkeypatch.setattr(device_list, "LIMIT", listed_size(empty, first))
    table = DeviceTable(empty, without_room=device_list.without_room)
    for found in ([first], [second, first], [second], [second]):
        table.set_devices(found)
        all_fine(table)
        # It comes first, though another one comes before it as people count.
        assert states(table) == {"b": first in found}
        # No check, no spec and no memory for what has no room.
        assert [device.id for device in table.resource.devices] == ["b"]
    assert list(table.left_out) == ["a"]
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("left out a device resource=example.com/dev device=a reason=")
    assert "the kubelet accepts a list of at most" in caplog.messages[0]
    table.set_devices([])
    assert table.left_out == {}


async def test_a_declared_device_has_its_place_before_discovered_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    (empty,) = parse_resources([{"name": "example.com/dev"}])
    found = discovered("a", "b")
    monkeypatch.setattr(device_list, "LIMIT", 2 * listed_size(empty, found[0]))
    former = DeviceTable(empty, without_room=device_list.without_room)
    former.set_devices(found)
    all_fine(former)
    (declared,) = parse_resources([{"name": "example.com/dev", "devices": [{"id": "d"}], "env": {"DEV": "x"}}])
    table = DeviceTable(declared, former=former, without_room=device_list.without_room)
    table.set_devices(found)
    all_fine(table)
    assert set(states(table)) == {"d", "a"}
    assert list(table.left_out) == ["b"]


async def test_other_devices_are_read_before_a_pod_waits_for_them() -> None:
    (empty,) = parse_resources([{"name": "example.com/dev"}])
    table = DeviceTable(empty)
    change = table.change
    table.set_devices(discovered("a"))
    assert change.is_set()
    change = table.change
    table.set_devices(discovered("a"))
    assert not change.is_set()


async def test_what_is_gone_for_ten_minutes_may_be_forgotten() -> None:
    now = 0.0
    (resource,) = parse_resources([{"name": "example.com/found", "discover": {"paths": ["/dev/tty*"]}}])
    stays, goes = (device._replace(id=name) for device, name in zip(RESOURCE.devices, ("stays", "goes")))
    table = DeviceTable(resource, clock=lambda: now)
    table.set_devices([stays, goes])
    table.update({"stays": None, "goes": None})
    now = 100.0
    table.set_devices([stays])
    # Another declaration of the same devices knows since when.
    table = DeviceTable(resource._replace(replicas=2), clock=lambda: now, former=table)
    now = 699.0
    table.set_devices([stays])
    assert table.long_gone() == frozenset()
    now = 700.0
    assert table.long_gone() == {"goes"}
    table.set_devices([stays, goes])
    assert table.long_gone() == frozenset()
    table.set_devices([stays])
    now = 1300.0
    woken = table.change
    table.forget(table.long_gone())
    assert woken.is_set()
    assert [device.id for device in table.resource.devices] == ["stays"]
    assert listed(table) == (Listed("stays::0", True), Listed("stays::1", True))
    table.set_devices([stays, goes])
    # As if it had never been there: not shown before it is checked.
    assert listed(table) == (Listed("stays::0", True), Listed("stays::1", True))


async def test_ever_new_serial_numbers_do_not_fill_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is there for 5 minutes; a device that somebody holds stays, though it went first."""
    now = 0.0
    (empty,) = parse_resources([{"name": "example.com/dev"}])
    held, *serials = discovered("held", *("d%03d" % number for number in range(50)))
    room_for_five = 5 * listed_size(empty, serials[0])
    monkeypatch.setattr(device_list, "LIMIT", room_for_five)
    table = DeviceTable(empty, clock=lambda: now, without_room=device_list.without_room)
    table.set_devices([held])
    all_fine(table)
    for number, serial in enumerate(serials):
        now += 300.0
        table.set_devices([serial])
        all_fine(table)
        assert table.left_out == {}
        # As a ResourceManager does, which asks the kubelet who holds what.
        table.forget(table.long_gone() - {"held"})
        gone = {each.id: False for each in serials[max(0, number - 2) : number]}
        assert states(table) == {"held": False, **gone, serial.id: True}
