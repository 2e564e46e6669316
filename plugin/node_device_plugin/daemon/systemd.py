"""Messages to systemd (sd_notify) and pings for its watchdog (WatchdogSec)."""

from __future__ import annotations

import asyncio
import os
import socket

from ..telemetry.logs import Log

log = Log(__name__)


def notify(message: str) -> bool:
    """Send a message, e.g. ``READY=1``, to the socket in NOTIFY_SOCKET, if this variable is set.

    Never waits. Returns False if systemd's message queue is full. Any other failure only goes to
    the debug log, because a process may inherit a NOTIFY_SOCKET on which no process listens.
    """
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return True
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
        connection.setblocking(False)
        try:
            connection.connect(address)
            connection.send(message.encode())
        except BlockingIOError:
            return False
        except OSError as error:
            log.debug(
                "cannot send a notification to systemd",
                of=message.partition("=")[0],
                socket=address,
                error=error.strerror,
            )
    return True


def is_service() -> bool:
    """Whether systemd started this process as a service."""
    return bool(os.environ.get("NOTIFY_SOCKET"))


def watchdog_interval() -> float | None:
    """Seconds between pings, a third of systemd's limit; None if the watchdog is off (see sd_watchdog_enabled)."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not microseconds.isdigit() or (pid and pid != str(os.getpid())):
        return None
    return int(microseconds) / 3e6


async def ping_watchdog(every: float) -> None:
    """Ping until cancelled. If the event loop hangs, pings stop and systemd restarts the plugin."""
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(every)
