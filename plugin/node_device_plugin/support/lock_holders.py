# SPDX-License-Identifier: Apache-2.0
"""Finds the processes that hold an flock. Any user who may open a file or directory may lock it.

Also runs on controllers, which may have macOS.
"""

from __future__ import annotations

import os
import pwd
import re
from typing import NamedTuple

from .bounded_reads import beginning_of
from .tables import few

#: The mount point of proc(5).
PROC = "/proc"
#: Maximum characters of a command that a message shows.
_MOST_SHOWN = 80
_FLOCK = re.compile(r"(?m)^lock:\s+\d+: FLOCK\s+\S+\s+\S+\s+-?\d+ (\S+) ")


class Holder(NamedTuple):
    """A process that has an open file with the lock. uids: its real, effective, saved and file system user ids."""

    pid: int
    command: str
    uids: tuple[int, ...]

    @property
    def is_ours(self) -> bool:
        """Whether the process has the user of this process, as the programs of this project have that lock a file."""
        return set(self.uids) == {os.geteuid()}

    def __str__(self) -> str:
        return "process %d (%s, user %s)" % (self.pid, self.command, _name_of(self.uids[0]))


def holders(path: str) -> list[Holder]:
    """Return the processes that hold an flock of a file or directory, in the order of their ids.

    The result is empty if /proc shows none, for example because its reader is in a sandbox, or if the system is not
    Linux. Source: proc(5), fdinfo. Unlike /proc/locks, fdinfo names each process that has inherited the lock of a
    process that has ended.
    """
    if not hasattr(os, "O_PATH"):
        return []
    try:
        wanted = _key_of(path)
    except (OSError, ValueError, StopIteration):
        return []
    pids = sorted(int(name) for name in os.listdir(PROC) if name.isdigit())
    return [found for found in (_holder(pid) for pid in pids if _holds(pid, wanted)) if found is not None]


def named(found: list[Holder], most: int = 3) -> str:
    """Return the holders as part of a sentence."""
    return ", ".join(few([str(each) for each in found], most)) or "a process that /proc does not show"


def _key_of(path: str) -> str:
    """Return the device and inode of a file as the kernel prints them for a lock; stat(2) may have other numbers."""
    descriptor = os.open(path, os.O_PATH)
    try:
        inode = os.fstat(descriptor).st_ino
        fields = dict(line.split(":\t", 1) for line in beginning_of(f"/proc/self/fdinfo/{descriptor}").splitlines())
    finally:
        os.close(descriptor)
    mounts = (line.split() for line in beginning_of("/proc/self/mountinfo", 1 << 24).splitlines())
    major, minor = next(mount[2] for mount in mounts if mount[0] == fields["mnt_id"].strip()).split(":")
    return "%02x:%02x:%d" % (int(major), int(minor), int(fields.get("ino", inode)))


def _holds(pid: int, wanted: str) -> bool:
    directory = f"{PROC}/{pid}/fdinfo"
    try:
        names = os.listdir(directory)
    except OSError:
        return False
    return any(wanted in _FLOCK.findall(beginning_of(f"{directory}/{name}")) for name in names)


def _holder(pid: int) -> Holder | None:
    uids = re.search(r"(?m)^Uid:\s(.*)$", beginning_of(f"{PROC}/{pid}/status"))
    if uids is None:
        # The process has ended.
        return None
    words = (
        beginning_of(f"{PROC}/{pid}/cmdline").replace("\0", " ").strip() or beginning_of(f"{PROC}/{pid}/comm").strip()
    )
    shown = "".join(each if each.isprintable() else "?" for each in words[:_MOST_SHOWN])
    return Holder(pid, shown, tuple(map(int, uids.group(1).split())))


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
