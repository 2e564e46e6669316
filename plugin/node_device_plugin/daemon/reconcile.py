"""The reconcile loop: scans the devices after each event, and prunes the CDI specs of devices that are gone."""

from __future__ import annotations

import asyncio
import time

from ..devices.events.watch import SWEEP, Watch
from .resource_manager import ResourceManager

#: Minimum pause after a scan, in seconds; a change after a quiet time starts a scan at once.
_PAUSE = 0.02
#: The pause is at least this many times the last scan's CPU time, so that busy directories cost little.
_REST = 5
#: Maximum pause after a scan, in seconds, so that a slow node still notices a lost device soon.
_LONGEST_REST = 1.0
#: Seconds between two checks of which pods hold devices by other names.
HOLDERS_PERIOD = 2.0
#: Maximum seconds between two scans while a flapping device waits to be trusted again.
_UNSTEADY_PERIOD = 1.0


async def reconcile(resources: ResourceManager, watch: Watch) -> None:
    """Scan every device after each event and when a sweep is due, until cancelled."""
    while True:
        happened = await watch.changed(None if resources.are_steady else _UNSTEADY_PERIOD)
        before = time.process_time()
        if not happened or await resources.is_news():
            await resources.check()
        await asyncio.sleep(rest(time.process_time() - before))


def rest(worked: float) -> float:
    """Seconds until the next scan. worked: seconds of CPU that the last scan used, without the time that it waited."""
    return min(_LONGEST_REST, max(_PAUSE, _REST * worked))


async def watch_holders(resources: ResourceManager) -> None:
    """Offer devices again once no pod holds them by another name, until cancelled; the kubelet sends no event."""
    while True:
        await asyncio.sleep(HOLDERS_PERIOD)
        await resources.ask_for_holders()


async def prune(resources: ResourceManager) -> None:
    """Prune the dynamic CDI specs with each sweep, until cancelled.

    A task of its own, because a slow answer of the kubelet must not delay a scan.
    """
    while True:
        await asyncio.sleep(SWEEP)
        await resources.prune()
