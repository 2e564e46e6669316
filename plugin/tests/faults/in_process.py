"""The plugin's connection in this process, as plugin.run has it, and a look at what this process holds."""

import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from node_device_plugin.declaration import Resource, parse_resources
from node_device_plugin.devices.table import DeviceTable
from node_device_plugin.kubelet.device_plugin.kubelet_socket import KubeletSocket
from node_device_plugin.kubelet.device_plugin.registration import Registration
from node_device_plugin.kubelet.device_plugin.server import DevicePluginServer

NAME = "example.com/dev"


def resource(**more: Any) -> Resource:
    """Two devices that are healthy where they are looked for."""
    devices = [{"id": "d0", "nodes": [{"path": "/dev/null"}]}, {"id": "d1", "nodes": [{"path": "/dev/zero"}]}]
    (parsed,) = parse_resources([{"name": NAME, "env": {"DEV_{index}": "{id}"}, "devices": devices, **more}])
    return parsed


@contextlib.asynccontextmanager
async def registration(directory: str, served: Resource) -> AsyncIterator[Registration]:
    """One resource served and kept registered inside this block, its devices healthy."""
    table = DeviceTable(served)
    table.update({device.id: None for device in served.devices})
    running = Registration(DevicePluginServer(table), KubeletSocket(directory))
    task = asyncio.create_task(running.run())
    try:
        yield running
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class Held(NamedTuple):
    """What this process holds. resident: MiB."""

    files: int
    tasks: int
    resident: float


async def held() -> Held:
    """After everything that ends by itself has ended."""
    for _ in range(3):
        await asyncio.sleep(0.05)
        gc.collect()
    # The kernel answers at once.
    with open("/proc/self/statm") as statm:  # noqa: ASYNC230
        pages = int(statm.read().split()[1])
    return Held(
        files=len(os.listdir("/proc/self/fd")),
        tasks=len(asyncio.all_tasks()),
        resident=pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
    )
