# SPDX-License-Identifier: Apache-2.0
"""Defines, writes and reads a transaction's plan."""

from __future__ import annotations

import base64
import glob
import json
import os
import sys
from typing import Any, NamedTuple

from .. import boot_unit
from .. import ledger as ledgers

_NAME = "plan.json"


class Places(NamedTuple):
    """The paths that a transaction uses on a node.

    directory: our directory. units: systemd's directory for permanent units. lock: a transaction's or recovery's lock
    file.
    """

    directory: str = ledgers.DIRECTORY
    units: str = boot_unit.UNITS
    lock: str = "/run/node-devices-transaction.lock"

    @property
    def open(self):
        """The directory of the open transaction."""
        return os.path.join(self.directory, "transaction")

    @property
    def closed(self):
        """The directory of the last closed transaction, until a run reads the outcome."""
        return os.path.join(self.directory, "transaction.closed")

    @property
    def prepared(self):
        """The prefix of prepared transactions' directories."""
        return os.path.join(self.directory, "transaction.new.")

    def recovery(self, *options):
        """Return the command that runs the recovery with the open transaction's own program."""
        return [sys.executable, "-I", os.path.join(self.open, "program.zip"), "recover", *options]

    def left(self):
        """Return the existing directories of open, closed and prepared transactions."""
        directories = (self.open, self.closed, *glob.glob(self.prepared + "*"))
        return [directory for directory in directories if os.path.isdir(directory)]


class File(NamedTuple):
    """A file to write or remove.

    content: bytes; None to remove the file.
    mode, uid, gid: of the new file, which also gets the old file's extended attributes.
    before, expected_sha256: the file's content before the change, and its hash; None if no file may exist.
    context: SELinux context of a file that did not exist before; None without SELinux.
    """

    path: str
    content: bytes | None
    mode: int
    uid: int
    gid: int
    expected_sha256: str | None
    context: str | None = None
    # A plan of an earlier release has only the hash, which suffices to finish or undo the transaction.
    before: bytes | None = None


class Directory(NamedTuple):
    """A directory to create, with its SELinux context."""

    path: str
    context: str | None = None


class Plan(NamedTuple):
    """A transaction's plan.

    identity: a unique text. owner: a role's name in the ledger.
    files: to write or remove; empty to only restart the runtime. directories: to create, outermost first.
    entries: maps a path to its new entry in the ledger; None deletes the entry. undo: whether to undo our change.
    unit: the runtime's service. question: a command that queries the running runtime and prints JSON.
    spec_dirs: CDI directories that the runtime must report, with CDI enabled; None to skip this check.
    timeout: seconds that the runtime may take to answer.
    """

    identity: str
    owner: str
    files: list[File]
    directories: list[Directory]
    entries: dict[str, Any]
    undo: bool
    unit: str
    question: list[str]
    spec_dirs: list[str] | None
    timeout: float

    def save(self, directory):
        """Write the plan into a transaction's directory, durably."""
        lists = {name: [each._asdict() for each in getattr(self, name)] for name in ("files", "directories")}
        # Only contents are no JSON values.
        text = json.dumps({**self._asdict(), **lists}, default=lambda content: base64.b64encode(content).decode())
        ledgers.write_file(os.path.join(directory, _NAME), text.encode(), 0o600)

    @classmethod
    def load(cls, directory):
        """Read a plan from a transaction's directory. Raises LedgerConflict if the file is damaged."""
        path = os.path.join(directory, _NAME)
        try:
            with open(path, encoding="utf-8") as file:
                data = json.load(file)
            # A plan of an earlier release has the command of a step that this release does not have.
            data.pop("check", None)
            for each in data["files"]:
                for name in ("content", "before"):
                    if each.get(name) is not None:
                        each[name] = base64.b64decode(each[name])
            data["files"] = [File(**each) for each in data["files"]]
            data["directories"] = [Directory(**each) for each in data["directories"]]
            return cls(**data)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ledgers.LedgerConflict(
                f"{path} is damaged ({error}), so the interrupted change is unknown. Check and correct the runtime's "
                "configuration (the previous one may be beside it, as .config.toml.node-devices-old), then remove "
                f"that copy and {directory}"
            ) from error
