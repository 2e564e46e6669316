"""What systemd is told (sd_notify): a datagram to the socket that NOTIFY_SOCKET names."""

from __future__ import annotations

import os
import socket


def notify(message: str) -> None:
    """Send e.g. ``READY=1``; does nothing where systemd does not listen."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as connection:
        connection.connect(address)
        connection.send(message.encode())
