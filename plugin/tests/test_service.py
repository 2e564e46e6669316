"""The DevicePlugin service, called as the kubelet calls it."""

import asyncio
from typing import List

from node_device_plugin.declaration import parse_resources
from node_device_plugin.device_table import DeviceTable
from node_device_plugin.service import DevicePlugin
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

(RESOURCE,) = parse_resources([{"name": "example.com/dev", "devices": [{"id": "d0"}, {"id": "d1"}]}])


def health(message: api.ListAndWatchResponse) -> List[str]:
    return ["%s %s" % (device.ID, device.health) for device in message.devices]


async def test_the_first_change_goes_out_at_once_and_those_right_after_it_as_one() -> None:
    table = DeviceTable(RESOURCE)
    table.update({"d0": None, "d1": None})
    service = DevicePlugin(table, coalesce=0.3)
    heard: asyncio.Queue[List[str]] = asyncio.Queue()

    async def listen() -> None:
        async for message in service.ListAndWatch(api.Empty(), None):
            heard.put_nowait(health(message))

    listener = asyncio.create_task(listen())
    assert await heard.get() == ["d0 Healthy", "d1 Healthy"]
    table.update({"d0": "gone"})
    assert await asyncio.wait_for(heard.get(), 0.2) == ["d0 Unhealthy", "d1 Healthy"]
    loop = asyncio.get_running_loop()
    sent = loop.time()
    table.update({"d1": "gone"})
    await asyncio.sleep(0)
    table.update({"d0": None})
    assert await heard.get() == ["d0 Healthy", "d1 Unhealthy"]
    assert loop.time() - sent > 0.25
    # A change that is taken back meanwhile is none.
    table.update({"d0": "gone"})
    table.update({"d0": None})
    await asyncio.sleep(0.4)
    assert heard.empty()
    # The end is not held up.
    service.stream.end()
    await asyncio.wait_for(listener, 1)
