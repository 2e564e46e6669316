"""Measures how soon a kubelet offers the resources of the plugin's pod: until_offered.py RESOURCE...

Polls PodResources until it has lost the devices of a RESOURCE and then has devices of each RESOURCE. Prints the time in
milliseconds since the start of the pod's container. Start it before the pod. Runs on a node with the environment of
role node_tools.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from node_device_plugin.kubelet.pod_resources import PodResourcesClient
from node_device_plugin.kubelet.queries import POD_RESOURCES_SOCKET
from node_device_plugin.runtime.client import CriClient

_LABELS = {"io.kubernetes.pod.namespace": "node-devices", "io.kubernetes.container.name": "plugin"}
# Seconds between two queries (the kubelet answers 100 queries per second), and for the complete measurement.
_PAUSE = 0.02
_TIMEOUT = 90


async def _offered(wanted: set[str]) -> float:
    """When all were offered again, in seconds since the epoch."""
    deadline, missed, offered = time.monotonic() + _TIMEOUT, False, set()
    async with PodResourcesClient(os.path.join("/var/lib/kubelet", POD_RESOURCES_SOCKET)) as kubelet:
        while time.monotonic() < deadline:
            offered = {name for name, devices in (await kubelet.allocatable()).items() if devices}
            if missed and wanted <= offered:
                return time.time()
            missed = missed or not wanted <= offered
            await asyncio.sleep(_PAUSE)
    sys.exit("within %d s: offered %s, %s before" % (_TIMEOUT, sorted(offered), "less" if missed else "never less"))


async def _main(wanted: list[str]) -> None:
    offered = await _offered(set(wanted))
    async with CriClient("/run/containerd/containerd.sock") as runtime:
        containers = await runtime.containers(_LABELS)
        newest = max(containers, key=lambda each: each.created_at)
        started = (await runtime.container_status(newest.id)).started_at / 1e9
    print("%d ms" % ((offered - started) * 1000))


asyncio.run(_main(sys.argv[1:]))
