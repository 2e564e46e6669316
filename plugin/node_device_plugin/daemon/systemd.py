"""Messages to systemd (sd_notify), and the pings for its watchdog (WatchdogSec)."""

from __future__ import annotations

import asyncio
import os
import socket

from ..telemetry.logs import Log

log = Log(__name__)


def notify(message: str) -> bool:
    """Send e.g. ``READY=1`` to the socket that NOTIFY_SOCKET names; does nothing where systemd does not listen.

    Never waits: False where systemd has so many messages to read that this one was not taken. That nobody listens at
    the address (a variable that was passed on to another process) is no reason not to go on.
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
            log.debug("cannot notify systemd", of=message.partition("=")[0], socket=address, error=error.strerror)
    return True


def watchdog_interval() -> float | None:
    """Seconds between pings: a third of what systemd asks for; None where it asks for none (sd_watchdog_enabled)."""
    microseconds, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not microseconds.isdigit() or (pid and pid != str(os.getpid())):
        return None
    return int(microseconds) / 3e6


async def ping_watchdog(every: float) -> None:
    """Ping until cancelled, from the event loop itself: a loop that hangs sends no ping, and systemd restarts it."""
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(every)
