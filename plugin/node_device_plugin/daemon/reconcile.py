"""The reconcile loop: scans the devices after news of them, and prunes the CDI specs of what is gone."""

from __future__ import annotations

import asyncio
import time

from ..devices.events.watch import SWEEP, Watch
from .resource_manager import ResourceManager

#: Seconds that pass at least between two looks at the devices; the first change is seen at once.
_PAUSE = 0.02
#: How many times as long as a look worked, so that busy directories cost little.
_REST = 5
#: And at most: nobody's device is away for longer before it shows, however slow the node is.
_LONGEST_REST = 1.0
#: Seconds between two looks at who holds devices by other names.
HOLDERS_PERIOD = 2.0
#: Seconds between two looks, at most, while a device is not trusted yet because it comes and goes.
_UNSTEADY_PERIOD = 1.0


async def reconcile(resources: ResourceManager, watch: Watch) -> None:
    """Look at every device whenever something happened or a sweep is due, until cancelled."""
    while True:
        happened = await watch.changed(None if resources.are_steady else _UNSTEADY_PERIOD)
        before = time.process_time()
        if not happened or await resources.is_news():
            await resources.check()
        await asyncio.sleep(rest(time.process_time() - before))


def rest(worked: float) -> float:
    """Seconds until the next look. worked: seconds of CPU that the last one took; what it waited for does not count."""
    return min(_LONGEST_REST, max(_PAUSE, _REST * worked))


async def watch_holders(resources: ResourceManager) -> None:
    """Give back what is held by another name once it is free, until cancelled: no kubelet tells of that."""
    while True:
        await asyncio.sleep(HOLDERS_PERIOD)
        await resources.ask_for_holders()


async def prune(resources: ResourceManager) -> None:
    """Prune the dynamic CDI specs time and again, until cancelled.

    Apart from looking, because it asks the kubelet, which may take its time.
    """
    while True:
        await asyncio.sleep(SWEEP)
        await resources.prune()
