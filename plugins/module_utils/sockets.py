# SPDX-License-Identifier: Apache-2.0
"""Who listens on a unix socket. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import os
import socket
import stat
import struct
import time

#: Seconds that a service may take to come up when somebody calls on the socket that systemd made for it.
_START = 5
_PAUSE = 0.1


def listener(path, seconds=_START):
    """The process behind a unix socket: (pid, problem).

    seconds: how long a service that systemd starts for the call may take.
    """
    try:
        if not stat.S_ISSOCK(os.stat(path).st_mode):
            return None, "it is not a socket"
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.settimeout(5)
            client.connect(path)
            # Credentials of whoever called listen(); see unix(7).
            credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
            pid = struct.unpack("3i", credentials)[0]
            # Where systemd made the socket, listen() was its call, and the daemon has it from there.
            if pid != 1 and os.path.exists("/proc/%d/exe" % pid):
                return pid, None
            return _awaited(path, seconds)
    except OSError as error:
        return None, (error.strerror or str(error)).lower()


def _awaited(path, seconds):
    until = time.monotonic() + seconds
    while True:
        pid = holder(path)
        if pid is not None:
            return pid, None
        if time.monotonic() >= until:
            return None, "something listens there, and no process that can be seen here has the socket"
        time.sleep(_PAUSE)


def holder(path):
    """The process, apart from the first one, that has the socket with that path open; None where none has."""
    links = {"socket:[%s]" % inode for inode in _inodes(os.path.realpath(path))}
    for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc")))):
        if pid != 1 and links & _open_files(pid):
            return pid
    return None


def _inodes(path):
    """The inodes of the sockets that are bound to a path, in whichever spelling. See proc(5), /proc/net/unix."""
    with open("/proc/net/unix", encoding="utf-8", errors="replace") as file:
        rows = [line.rstrip("\n").split(None, 7) for line in file]
    return [row[6] for row in rows if len(row) == 8 and os.path.realpath(row[7]) == path]


def _open_files(pid):
    folder = "/proc/%d/fd" % pid
    links = set()
    try:
        for name in os.listdir(folder):
            try:
                links.add(os.readlink(os.path.join(folder, name)))
            except OSError:
                continue
    except OSError:
        # It has ended, or is hidden.
        pass
    return links
