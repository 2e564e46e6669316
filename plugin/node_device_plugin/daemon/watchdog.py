"""Pings for systemd's watchdog (WatchdogSec): they stop where the plugin hangs, and systemd starts it anew."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Callable, Optional

from . import systemd

log = logging.getLogger(__name__)


def interval() -> Optional[float]:
    """Seconds between pings: a third of what systemd asks for; None where it asks for none (sd_watchdog_enabled)."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not microseconds.isdigit() or (pid and pid != str(os.getpid())):
        return None
    return int(microseconds) / 3e6


async def ping(every: float, is_alive: Callable[[], bool]) -> None:
    """Ping until cancelled, from the event loop itself: a loop that hangs pings no more.

    is_alive: whether every task runs. While one does not, no ping is sent.
    """
    while True:
        if is_alive():
            systemd.notify("WATCHDOG=1")
        else:
            log.error("a task has ended: no more pings for systemd's watchdog")
        await asyncio.sleep(every)
