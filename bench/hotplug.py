"""Measures the time from a device node's disappearance or appearance until the kubelet's list shows this change."""

from __future__ import annotations

import asyncio
import os
import time

from . import processes
from .figures import Figure, median, percentile
from .settings import Settings, settings, until

CHANGES = 10
#: Limit in milliseconds.
MOST = 100.0


def measure() -> list[Figure]:
    with settings(resources=10, devices=10) as given, processes.plugin(given.config, given.log):
        gone, appeared = asyncio.run(_changes(given))
    return [
        Figure("a device node goes, median of %d" % CHANGES, "ms", median(gone), most=MOST),
        Figure("a device node goes, p95", "ms", percentile(gone, 0.95)),
        Figure("a device node appears, median of %d" % CHANGES, "ms", median(appeared), most=MOST),
        Figure("a device node appears, p95", "ms", percentile(appeared, 0.95)),
    ]


async def _changes(given: Settings) -> tuple[list[float], list[float]]:
    gone, appeared = [], []
    async with given.kubelet() as kubelet:
        await until(lambda: given.all_connected(kubelet))

        async def shown(resource: int, device: int, health: str) -> float:
            name, device_id = given.resources[resource], given.id(resource, device)
            started = time.monotonic()
            return (await until(lambda: kubelet.devices(name)[device_id] == health) - started) * 1e3

        for number in range(CHANGES):
            # Use another device each time, because the plugin delays a device that comes and goes.
            resource, device = number % len(given.resources), number // len(given.resources)
            # For a second after a change, the plugin holds back further changes, so wait longer.
            await asyncio.sleep(1.2)
            os.unlink(given.node(resource, device))
            gone.append(await shown(resource, device, "Unhealthy"))
            await asyncio.sleep(1.2)
            os.symlink("/dev/null", given.node(resource, device))
            appeared.append(await shown(resource, device, "Healthy"))
    return gone, appeared
