"""The kernel's news of devices: the netlink messages that udev, too, acts on (NETLINK_KOBJECT_UEVENT, netlink(7)).

A message is ``add@/devices/...`` and lines NAME=value, all ended by a NUL. The kernel sends it after it has made the
device's sysfs entries and its node in /dev (drivers/base/core.c, device_add). It goes to every network namespace of the
first user namespace, so that a service with a network of its own hears it; udev's own messages do not get there, which
is why links that udev makes are watched by inotify.
"""

from __future__ import annotations

import errno
import socket

_NETLINK_KOBJECT_UEVENT = 15
_KERNEL_GROUP = 1
_MESSAGE_SIZE = 8192
#: "change" is left out: batteries and disks say it all the time, and no device comes or goes by it.
_ACTIONS = frozenset((b"add", b"remove", b"move", b"bind", b"unbind"))


class Uevents:
    """Tells that a device came or went. Raises OSError where the socket is not allowed (RestrictAddressFamilies).

    fileno(): readable when a message has come.
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
        """Take in all messages; whether a device came or went, or messages were lost."""
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
            # Port 0 is the kernel; anybody else could only pretend.
            news = news or (port == 0 and message.partition(b"@")[0] in _ACTIONS)
