"""Measures how long CRI does not answer. Queries CRI continuously until the file in its argument is removed.

Prints the longest time between two answers, in seconds.
"""

import asyncio
import os
import sys
import time

from node_device_plugin.runtime.client import CriClient
from node_device_plugin.runtime.errors import CriError


async def main():
    longest, answered = 0.0, time.monotonic()
    while os.path.exists(sys.argv[1]):
        # Use a new client, because a client waits before it retries a failed connection.
        async with CriClient("/run/containerd/containerd.sock") as cri:
            try:
                await cri.version()
            except CriError:
                await asyncio.sleep(0.005)
                continue
        longest, answered = max(longest, time.monotonic() - answered), time.monotonic()
    print("%.2f" % longest)


asyncio.run(main())
