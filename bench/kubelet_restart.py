"""Measures the time from a restarted kubelet's socket until the kubelet has every resource's list.

The stand-in runs in this process, so the figure includes the stand-in's own work.
"""

from __future__ import annotations

import asyncio
import os
import time

from . import processes
from .figures import Figure, median, percentile
from .settings import Settings, settings, until

RESTARTS = 100


def measure() -> list[Figure]:
    with settings(resources=10, devices=10) as given, processes.plugin(given.config, given.log):
        back = asyncio.run(_restarts(given))
    return [
        Figure("back after a kubelet restart, 10 resources, median of %d" % RESTARTS, "ms", median(back), most=50),
        Figure("back after a kubelet restart, 10 resources, p95", "ms", percentile(back, 0.95), most=250),
    ]


async def _restarts(given: Settings) -> list[float]:
    back = []
    async with given.kubelet() as kubelet:
        await until(lambda: given.all_connected(kubelet))
        for number in range(RESTARTS):
            await kubelet.stop()
            # Vary the pause from zero to more than the plugin's check interval, so that every phase occurs.
            await asyncio.sleep(number % 10 * 0.03)
            await kubelet.start()
            # The file system's clock lags by up to a tick (4 ms), so the result is never too short.
            appeared = os.stat(kubelet.socket).st_ctime_ns / 1e9
            await until(lambda: given.all_connected(kubelet))
            back.append((time.time() - appeared) * 1e3)
    return back
