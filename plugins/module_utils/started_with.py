# SPDX-License-Identifier: Apache-2.0
"""Records with which files a unit was started, so that a later run knows whether the unit must start again.

Runs on nodes: Python 3.9, standard library only. Times of files decide nothing, because a node's clock may be wrong.
The record is in /run, because at a boot systemd reads every unit again. The record has the unit's InvocationID, which
changes at each start, and the hash of each file.
"""

from __future__ import annotations

import contextlib
import json
import os

from . import ledger as ledgers

DIRECTORY = "/run"


class StartedWith:
    """The record of a unit. files: what the unit reads when it starts. A link leads to the program's version."""

    def __init__(self, unit, files):
        self._path = os.path.join(DIRECTORY, f"node-devices.{unit}.started")
        self._now = {path: _hash_of(path) for path in files if not os.path.islink(path)}
        self._links = [path for path in files if os.path.islink(path)]

    def is_stale(self, state, is_unread):
        """Return whether the running unit may have started with other files.

        state: the unit's properties in systemd. is_unread: whether systemd has not read the unit's present file, or
        this play changed a file. Both count only if this module has not recorded the unit's present start.
        """
        if any(_runs_another_version(state.get("MainPID", "0"), link) for link in self._links):
            return True
        record = self._read()
        if record and record["invocation"] == state.get("InvocationID"):
            return record["files"] != self._now
        return is_unread or bool(record and record["files"] != self._now)

    def is_recorded(self, state):
        """Return whether the record describes the unit's present start and files."""
        return self._read() == self._record(state)

    def write(self, state):
        """Record the unit's present start."""
        if self._now and not self.is_recorded(state):
            ledgers.write_file(self._path, json.dumps(self._record(state)).encode(), 0o600)

    def remove(self):
        """Remove the record."""
        ledgers.remove_file(self._path)

    def _record(self, state):
        return {"invocation": state.get("InvocationID"), "files": self._now} if self._now else None

    def _read(self):
        with contextlib.suppress(OSError, ValueError, RecursionError), open(self._path, encoding="utf-8") as file:
            record = json.load(file)
            if isinstance(record, dict) and set(record) == {"invocation", "files"}:
                return record
        return None


def _hash_of(path):
    try:
        with open(path, "rb") as file:
            return ledgers.sha256(file.read())
    except OSError:
        return None


def _runs_another_version(pid, link):
    """Return whether a process's program is beside the link's target, but not below it."""
    try:
        with open(f"/proc/{int(pid)}/cmdline", "rb") as file:
            program = os.fsdecode(file.read().split(b"\0")[0])
    except (OSError, ValueError):
        return False
    # The program itself is a link to the system's Python.
    directory, target = os.path.realpath(os.path.dirname(program)), os.path.realpath(link)
    return directory.startswith(os.path.dirname(target) + "/") and not (directory + "/").startswith(target + "/")
