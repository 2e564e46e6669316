"""The table: what is listed, what is news, and when watchers hear of it."""

import asyncio
from typing import Any, Dict, List

import pytest

from node_device_plugin.declaration import Device, parse_resources
from node_device_plugin.declaration.response_size import listed_size
from node_device_plugin.devices import table as device_table
from node_device_plugin.devices.flap_damping import UNSTEADY
from node_device_plugin.devices.ids import DeviceIds
from node_device_plugin.devices.table import DeviceTable, Listed

(RESOURCE,) = parse_resources(
    [
        {
            "name": "example.com/dev",
            "replicas": 2,
            "devices": [{"id": "need"}, {"id": "may", "required": False}],
        }
    ]
)
FINE = {"need": None, "may": None}


async def test_what_is_not_required_is_left_out_until_it_was_there_once() -> None:
    table = DeviceTable(RESOURCE)
    table.update({"need": None, "may": "gone"})
    assert table.listed() == (Listed("need::0", True), Listed("need::1", True))
    assert table.reason(RESOURCE.devices[1]) == "it is not on this node"
    table.update(FINE)
    table.update({"need": None, "may": "gone"})
    assert Listed("may::0", False) in table.listed()


async def test_what_is_required_is_listed_from_the_start_and_says_why_it_is_unhealthy() -> None:
    table = DeviceTable(RESOURCE)
    news = table.update({"need": "/dev/x: gone", "may": "gone"})
    assert [(device.id, reason) for device, reason in news] == [("need", "/dev/x: gone")]
    assert table.listed() == (Listed("need::0", False), Listed("need::1", False))
    assert table.reason(RESOURCE.devices[0]) == "/dev/x: gone"
    assert table.update({"need": "/dev/x: gone", "may": "gone"}) == []


async def test_a_watcher_hears_of_every_change_that_shows_and_of_nothing_else() -> None:
    table = DeviceTable(RESOURCE)
    table.update(FINE)
    heard: List[Any] = []

    async def watch() -> None:
        last = None
        while True:
            last = await table.changed(last)
            heard.append([entry.healthy for entry in last])

    watcher = asyncio.create_task(watch())
    for reasons in (FINE, {**FINE, "need": "gone"}, {**FINE, "need": "still gone"}, FINE):
        table.update(reasons)
        await asyncio.sleep(0.01)
    watcher.cancel()
    assert heard == [[True] * 4, [False, False, True, True], [True] * 4]


def discovered(*ids: str, path: str = "/dev/null") -> List[Device]:
    (resource,) = parse_resources(
        [{"name": "example.com/xx", "devices": [{"id": each, "nodes": [{"path": path}]} for each in ids]}]
    )
    return list(resource.devices)


def all_fine(table: DeviceTable) -> None:
    table.update({device.id: None for device in table.resource.devices})


def states(table: DeviceTable) -> Dict[str, bool]:
    return {entry.kubelet_id: entry.healthy for entry in table.listed()}


async def test_discovered_devices_come_after_the_declared_ones_in_natural_order() -> None:
    (declared,) = parse_resources([{"name": "example.com/dev", "devices": [{"id": "zz"}]}])
    table = DeviceTable(declared)
    table.set_devices(discovered("tty10", "tty2", "by-id-9"))
    assert table.listed() == ()
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
    (back, _) = discovered("a", "b", path="/dev/zero")
    table.set_devices([back, *discovered("b")])
    all_fine(table)
    assert states(table) == {"a": True, "b": True}
    # The path under a stable id is the one that it has now.
    assert table.resource.devices[0].nodes[0].path == "/dev/zero"


async def test_an_id_that_is_taken_is_refused_and_said(caplog: pytest.LogCaptureFixture) -> None:
    """The kubelet tells devices apart by id alone."""
    one, two = parse_resources([{"name": "example.com/one", "devices": [{"id": "d"}]}, {"name": "example.com/two"}])
    ids = DeviceIds()
    first, second = DeviceTable(one, ids), DeviceTable(two, ids)
    for _ in range(2):
        first.set_devices(discovered("d"))
        second.set_devices(discovered("d", "e"))
    all_fine(second)
    assert states(second) == {"e": True}
    assert second.refused == {"d": "its id is one of example.com/one already"}
    assert first.refused == {"d": "its id is one of example.com/one already"}
    assert caplog.messages == [
        "example.com/one: discovered device d is refused: its id is one of example.com/one already",
        "example.com/two: discovered device d is refused: its id is one of example.com/one already",
    ]
    ids.release("example.com/one")
    second.set_devices(discovered("d", "e"))
    assert second.refused == {}


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


async def test_what_is_gone_takes_its_place_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays listed, so it counts: a list that is too long loses the whole resource."""
    (empty,) = parse_resources([{"name": "example.com/dev"}])
    a, b = discovered("a", "b")
    monkeypatch.setattr(device_table, "LIMIT", listed_size(empty, a))
    table = DeviceTable(empty)
    table.set_devices([a])
    all_fine(table)
    table.set_devices([b])
    all_fine(table)
    assert states(table) == {"a": False}
    assert list(table.refused) == ["b"]
