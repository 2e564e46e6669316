"""What systemd is told (sd_notify): a datagram to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import logging
import os
import socket

log = logging.getLogger(__name__)


def notify(message: str) -> bool:
    """Send e.g. ``READY=1``; does nothing where systemd does not listen.

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
            log.debug("nobody is told %s: %s: %s", message.partition("=")[0], address, error.strerror)
    return True
