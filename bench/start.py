"""Measures the time from the start of the plugin's process until the kubelet has every resource's list."""

from __future__ import annotations

import asyncio

from . import processes
from .figures import Figure, median
from .settings import Settings, settings, until

ROUNDS = 5
#: Limit as a multiple of the floor.
MOST = 2.5


def measure() -> list[Figure]:
    figures = []
    for resources, devices in ((2, 3), (10, 100)):
        with settings(resources, devices) as given:
            ours, floor = [], []
            for _ in range(ROUNDS):
                floor.append(
                    asyncio.run(_once(given, processes.floor(given.device_plugin_dir, given.answers, given.log)))
                )
                ours.append(asyncio.run(_once(given, processes.plugin(given.config, given.log))))
        name = "start to registered, %d resources of %d devices" % (resources, devices)
        figures.append(Figure(name, "ms", median(ours), median(floor), MOST * median(floor)))
    return figures


async def _once(given: Settings, process: processes.Measured) -> float:
    async with given.kubelet() as kubelet:
        with process:
            return (await until(lambda: given.all_connected(kubelet)) - process.started) * 1e3
