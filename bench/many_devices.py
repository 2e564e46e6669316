"""10,000 devices in one resource: what one update costs."""

from __future__ import annotations

import asyncio
import os
from functools import partial
from typing import List, Tuple

from node_device_plugin.testing import StandInKubelet

from . import processes
from .figures import Figure, median
from .settings import Settings, settings, until

DEVICES = 10_000
ROUNDS = 5
#: Seconds of CPU.
MOST = 0.5


def measure() -> List[Figure]:
    with settings(resources=1, devices=DEVICES) as given, processes.plugin(given.config, given.log) as process:
        update, resident, start = asyncio.run(_updates(given, process))
    return [
        Figure("10,000 devices: CPU of one update", "s", update, most=MOST),
        Figure("10,000 devices: start to registered", "ms", start),
        Figure("10,000 devices: resident", "MiB", resident),
    ]


async def _updates(given: Settings, process: processes.Measured) -> Tuple[float, float, float]:
    async with given.kubelet() as kubelet:
        start = (await until(lambda: given.all_connected(kubelet)) - process.started) * 1e3
        used = []
        for number in range(ROUNDS):
            await asyncio.sleep(1.2)
            before = process.cpu()
            os.unlink(given.node(0, number))
            await until(partial(_unhealthy, kubelet, given.resources[0], given.id(0, number)))
            # What it does after the message belongs to it, too.
            await asyncio.sleep(0.5)
            used.append(process.cpu() - before)
        return median(used), process.resident(), start


def _unhealthy(kubelet: StandInKubelet, resource: str, device: str) -> bool:
    return kubelet.devices(resource)[device] == "Unhealthy"
