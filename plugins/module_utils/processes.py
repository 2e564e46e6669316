# SPDX-License-Identifier: Apache-2.0
"""Finds when a process started and which files changed since. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import os

from .node_device_plugin.support.bounded_reads import text_of as text_of


def stat_of(pid):
    """Return the fields after the name in /proc/PID/stat, see proc(5); empty if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            # The name, in parentheses, may contain anything.
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def started_at(pid):
    """Return a process's start in seconds since 1970, see proc(5); None if the process has ended.

    The result can be wrong by about a second.
    """
    fields, boot = stat_of(pid), text_of("/proc/stat")
    if not fields or not boot:
        return None
    booted = next(int(line.split()[1]) for line in boot.splitlines() if line.startswith("btime "))
    return booted + int(fields[19]) / os.sysconf("SC_CLK_TCK")


def written_since(pid, paths):
    """Return the files that someone wrote after a process's start. The process may not have read their new content."""
    start = started_at(pid)
    # Two seconds cover the error of the start time.
    return [path for path in paths if start and os.path.exists(path) and os.stat(path).st_mtime > start + 2]
