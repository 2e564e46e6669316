# SPDX-License-Identifier: Apache-2.0
"""Reads and writes a transaction's journal. Each step is on the disk before its execution.

The file has one JSON object per line. Its disk space is allocated in advance, so that an undo can write records on a
full disk.
"""

from __future__ import annotations

import json
import os
import time

from .. import ledger as ledgers
from ..node_device_plugin.support.new_file import naming, new_file

NAME = "journal"
# By default a node runs up to 110 pods. Each container needs a few hundred bytes.
_SPACE = 128 * 1024


class Journal:
    """The journal in a transaction's directory."""

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
                # The record is incomplete, so its step has not begun.
                break
            self.records.append(record)
            self._end += len(line)

    @classmethod
    def create(cls, directory):
        """Create an empty journal. Raises OSError if the disk is full."""
        path = os.path.join(directory, NAME)
        with naming(path), new_file(path) as file:
            os.posix_fallocate(file.fileno(), 0, _SPACE)
            os.fsync(file.fileno())
        ledgers.sync(directory)

    def append(self, step, **fields):
        """Append a record, durably."""
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
        """Return a step's first record; None if the step has not begun."""
        return next((record for record in self.records if record["step"] == step), None)
