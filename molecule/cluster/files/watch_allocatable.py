"""For how long a kubelet offers less than it did at first: watch_allocatable.py FILE

Looks until FILE is there, then prints the longest time in milliseconds, and how often it looked. Runs on a node with
the environment of role node_tools.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Dict, Mapping, Tuple

from node_device_plugin.kubelet.pod_resources import PodResourcesClient
from node_device_plugin.kubelet.queries import POD_RESOURCES_SOCKET

# Seconds between two looks: the kubelet answers 100 a second.
_PAUSE = 0.02


def _shown(allocatable: Mapping[str, Tuple[str, ...]]) -> Dict[str, Tuple[str, ...]]:
    return {name: tuple(sorted(devices)) for name, devices in allocatable.items() if devices}


async def _watch(end: str) -> None:
    async with PodResourcesClient(os.path.join("/var/lib/kubelet", POD_RESOURCES_SOCKET)) as kubelet:
        wanted = _shown(await kubelet.allocatable())
        fine, longest, looks = time.monotonic(), 0.0, 0
        while not os.path.exists(end):
            now = _shown(await kubelet.allocatable())
            looks += 1
            if now == wanted:
                longest = max(longest, time.monotonic() - fine)
                fine = time.monotonic()
            await asyncio.sleep(_PAUSE)
    assert wanted, "nothing was offered at first"
    print("%d ms, %d looks" % (max(longest, time.monotonic() - fine) * 1000, looks))


asyncio.run(_watch(sys.argv[1]))
