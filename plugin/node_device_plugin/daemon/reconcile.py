"""The loops that scan devices after each event, check their holders and prune the CDI specs."""

from __future__ import annotations

import asyncio
import time

from ..devices.events.watch import SWEEP, Watch
from .resource_manager import ResourceManager

#: Minimum pause after a scan, in seconds; a change after a quiet time starts a scan at once.
_PAUSE = 0.02
#: Between both limits, the pause is this many times the scan's CPU time, to bound the CPU load.
_REST = 5
#: Maximum pause after a scan, in seconds, so that a slow node still notices a lost device soon.
_LONGEST_REST = 1.0
#: Seconds between two checks whether pods still hold devices by other names.
HOLDERS_PERIOD = 2.0
#: Maximum seconds between two scans while a flapping device waits to become stable.
_UNSTEADY_PERIOD = 1.0


async def reconcile(resources: ResourceManager, watch: Watch) -> None:
    """Scan all devices after each relevant event and at each sweep, until cancelled."""
    while True:
        happened = await watch.changed(None if resources.are_steady else _UNSTEADY_PERIOD)
        before = time.process_time()
        if not happened or await resources.is_news():
            await resources.check()
        await asyncio.sleep(rest(time.process_time() - before))


def rest(worked: float) -> float:
    """Seconds until the next scan may start. worked: CPU seconds of the last scan."""
    return min(_LONGEST_REST, max(_PAUSE, _REST * worked))


async def watch_holders(resources: ResourceManager) -> None:
    """Until cancelled, offer devices again once no pod holds them by another name.

    This loop polls, because the kubelet sends no event.
    """
    while True:
        await asyncio.sleep(HOLDERS_PERIOD)
        await resources.ask_for_holders()


async def prune(resources: ResourceManager) -> None:
    """Prune the dynamic CDI specs with each sweep, until cancelled.

    This task is separate, because a slow answer of the kubelet must not delay a scan.
    """
    while True:
        await asyncio.sleep(SWEEP)
        await resources.prune()
