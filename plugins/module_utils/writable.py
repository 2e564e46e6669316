# SPDX-License-Identifier: Apache-2.0
"""Finds the reason why a file cannot be replaced. Writes nothing."""

from __future__ import annotations

import fcntl
import os
import shlex
import struct

# FS_IOC_GETFLAGS of linux/fs.h on most architectures. On the others, the flags are unknown.
_GET_FLAGS = 0x80006601 | struct.calcsize("l") << 16
_IMMUTABLE, _APPEND_ONLY = 0x10, 0x20


def obstacle(path, mounts="/proc/self/mountinfo"):
    """Return why an existing or new file at ``path`` cannot be written; None if no reason is known.

    mounts: see proc(5).
    """
    directory = os.path.dirname(path)
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    try:
        if os.statvfs(directory).f_flag & os.ST_RDONLY:
            return "its file system is mounted read-only"
    except OSError:
        return None
    if os.path.lexists(path) and path in mount_points(mounts):
        return "it is a mount point: change the file at the mount's source"
    for each in (path, directory):
        if _flags(each) & (_IMMUTABLE | _APPEND_ONLY):
            return f"{each} is immutable: run chattr -i -a {shlex.quote(each)}"
    return None


def mount_points(mounts="/proc/self/mountinfo"):
    """Return the mount points; empty if ``mounts`` is unreadable. mounts: see proc(5)."""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as file:
            # The kernel writes a space as \040.
            return {line.split()[4].replace("\\040", " ") for line in file}
    except OSError:
        return set()


def _flags(path):
    """Return a file's attributes, see ioctl_iflags(2); 0 if the attributes cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return 0
    try:
        return struct.unpack("l", fcntl.ioctl(descriptor, _GET_FLAGS, struct.pack("l", 0)))[0]
    except OSError:
        return 0
    finally:
        os.close(descriptor)
