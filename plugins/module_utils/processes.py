# SPDX-License-Identifier: Apache-2.0
"""When a process started, and what it cannot have read since. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import os


def started_at(pid):
    """When a process started, in seconds since 1970, to about a second; None if it has ended. See proc(5)."""
    stat, boot = text_of("/proc/%s/stat" % pid), text_of("/proc/stat")
    if not stat or not boot:
        return None
    # The name, in parentheses, may hold anything.
    ticks = int(stat.rpartition(")")[2].split()[19])
    booted = next(int(line.split()[1]) for line in boot.splitlines() if line.startswith("btime "))
    return booted + ticks / os.sysconf("SC_CLK_TCK")


def written_since(pid, paths):
    """Those of the files that were written after a process started, so that it may not have read them."""
    start = started_at(pid)
    # Two seconds are what nobody knows exactly.
    return [path for path in paths if start and os.path.exists(path) and os.stat(path).st_mtime > start + 2]


def text_of(path):
    """A file's text; None where there is none or it is not text."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except (OSError, UnicodeDecodeError):
        return None
