# SPDX-License-Identifier: Apache-2.0
"""A transaction's journal: what is about to be done is on the disk before it is done.

Runs on nodes: Python 3.9, standard library only. One JSON object a line, in a file whose space was taken beforehand, so
that a disk that fills up cannot keep an undoing from being written down.
"""

from __future__ import annotations

import json
import os
import time

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers

NAME = "journal"
# A node runs 110 pods as a rule; each of their containers takes some hundred bytes.
_SPACE = 128 * 1024


class Journal:
    """The journal in a transaction's folder."""

    def __init__(self, directory):
        self.path = os.path.join(directory, NAME)
        with open(self.path, "rb") as file:
            written = file.read().split(b"\0", 1)[0]
        self.records = []
        self._end = 0
        for line in written.splitlines(keepends=True):
            try:
                record = json.loads(line) if line.endswith(b"\n") else None
            except (RecursionError, ValueError):
                record = None
            if not isinstance(record, dict) or "step" not in record:
                # Cut off while it was written: what it announces was not begun.
                break
            self.records.append(record)
            self._end += len(line)

    @classmethod
    def create(cls, directory):
        """Make an empty one. Raises OSError where there is no space for it."""
        path = os.path.join(directory, NAME)
        with ledgers.naming(path), open(path, "xb", opener=_private) as file:
            os.posix_fallocate(file.fileno(), 0, _SPACE)
            os.fsync(file.fileno())
        ledgers.sync(directory)

    def append(self, step, **fields):
        """Write a record, durably."""
        record = {"step": step, "at": round(time.time(), 3), **fields}
        line = json.dumps(record).encode() + b"\n"
        with open(self.path, "r+b") as file:
            file.seek(self._end)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self.records.append(record)
        self._end += len(line)

    def find(self, step):
        """The first record of a step; None where it was not begun."""
        return next((record for record in self.records if record["step"] == step), None)


def _private(path, flags):
    return os.open(path, flags, 0o600)
