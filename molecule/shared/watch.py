"""Watches the allocatable devices and the holders in the kubelet's PodResources: watch.py FILE

Creates FILE.begun at its start, and ends when FILE is removed. Prints as JSON: the longest time in seconds without a
device of the first answer, the number of such times, and all sets of holders.
"""

import asyncio
import json
import os
import pathlib
import sys
import time

from node_device_plugin.kubelet.pod_resources import PodResourcesClient

# The kubelet answers at most 100 queries per second. Every tenth query is for the holders.
PAUSE = 0.015


async def main():
    async with PodResourcesClient("/var/lib/kubelet/pod-resources/kubelet.sock") as kubelet:
        first = await kubelet.allocatable()
        pathlib.Path(sys.argv[1] + ".begun").touch()
        last_whole, is_whole, longest, gaps, holders, count = time.monotonic(), True, 0.0, 0, [], 0
        while os.path.exists(sys.argv[1]):
            found = await kubelet.allocatable()
            now = time.monotonic()
            if all(set(ids) <= set(found.get(resource, ())) for resource, ids in first.items()):
                longest = max(longest, 0.0 if is_whole else now - last_whole)
                last_whole, is_whole = now, True
            else:
                gaps += is_whole
                is_whole = False
            if count % 10 == 0:
                held = sorted(
                    "%s %s %s" % (each.pod, each.resource, " ".join(each.device_ids))
                    for each in await kubelet.holders()
                )
                if held not in holders:
                    holders.append(held)
            count += 1
            await asyncio.sleep(PAUSE)
        longest = longest if is_whole else max(longest, time.monotonic() - last_whole)
    print(json.dumps({"longest": round(longest, 3), "gaps": gaps, "holders": holders, "looks": count}))


asyncio.run(main())
