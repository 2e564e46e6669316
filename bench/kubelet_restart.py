"""Back after a kubelet restart: from the moment the kubelet's socket is there until every resource's list has come.

The stand-in is in this process: its own work is in the figure.
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
            # From no time at all up to longer than the plugin's looks are apart: any phase of them.
            await asyncio.sleep(number % 10 * 0.03)
            await kubelet.start()
            # The file system's clock is late by up to a tick (4 ms), so this is too long rather than too short.
            appeared = os.stat(kubelet.socket).st_ctime_ns / 1e9
            await until(lambda: given.all_connected(kubelet))
            back.append((time.time() - appeared) * 1e3)
    return back
