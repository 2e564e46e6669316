"""Whether a kubelet offers less than it did at first: watch_allocatable.py FILE

Looks until FILE is there, then prints how often it looked, how often there was less, and the longest time of that in
milliseconds. Runs on a node with the environment of role node_tools.
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
        fine, longest, looks, less = time.monotonic(), 0.0, 0, 0
        while not os.path.exists(end):
            now = _shown(await kubelet.allocatable())
            looks += 1
            if any(not set(devices) <= set(now.get(name, ())) for name, devices in wanted.items()):
                less += 1
            else:
                longest = max(longest, time.monotonic() - fine)
                fine = time.monotonic()
            await asyncio.sleep(_PAUSE)
    assert wanted, "nothing was offered at first"
    longest = max(longest, time.monotonic() - fine)
    print("%d looks, %d with less, for %d ms" % (looks, less, longest * 1000 if less else 0))


asyncio.run(_watch(sys.argv[1]))
