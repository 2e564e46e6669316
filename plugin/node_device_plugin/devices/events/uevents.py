"""Reads kernel uevents, which udev also reads (NETLINK_KOBJECT_UEVENT, netlink(7)).

A message is ``add@/devices/...`` and lines NAME=value, each terminated by a NUL. The kernel sends
the message after creating the device's sysfs entries and /dev node (drivers/base/core.c,
device_add). The message reaches every network namespace of the initial user namespace, and so a
service with a private network. udev's own messages do not arrive there, so inotify watches the
links that udev creates.
"""

from __future__ import annotations

import errno
import socket

_NETLINK_KOBJECT_UEVENT = 15
_KERNEL_GROUP = 1
_MESSAGE_SIZE = 8192
#: Without "change": batteries and disks send it all the time, and it adds or removes no device.
_ACTIONS = frozenset((b"add", b"remove", b"move", b"bind", b"unbind"))


class Uevents:
    """Reports that a device came or went. Raises OSError if not allowed (RestrictAddressFamilies).

    fileno(): readable when a message has arrived.
    """

    def __init__(self) -> None:
        self._socket = socket.socket(
            socket.AF_NETLINK, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK, _NETLINK_KOBJECT_UEVENT
        )
        try:
            self._socket.bind((0, _KERNEL_GROUP))
        except OSError:
            self._socket.close()
            raise

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def read(self) -> bool:
        """Read all messages. Returns whether a device came or went, or messages were lost."""
        news = False
        while True:
            try:
                message, (port, _groups) = self._socket.recvfrom(_MESSAGE_SIZE)
            except BlockingIOError:
                return news
            except OSError as error:
                if error.errno != errno.ENOBUFS:
                    raise
                news = True
                continue
            # Only port 0 is the kernel; messages from other ports may be forged.
            news = news or (port == 0 and message.partition(b"@")[0] in _ACTIONS)
