"""The table: what is listed, what is news, and when watchers hear of it."""

import asyncio
from typing import Any, List

from node_device_plugin.declaration import parse_resources
from node_device_plugin.device_table import DeviceTable, Listed

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
