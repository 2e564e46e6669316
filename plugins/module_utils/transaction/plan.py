# SPDX-License-Identifier: Apache-2.0
"""What a transaction is to do, as it lies on the disk. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import base64
import glob
import json
import os
from typing import Any, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import boot_unit
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers

_NAME = "plan.json"
#: Fields that were renamed: the name in a plan that was written before, and the name now.
_RENAMED = {"patience": "timeout", "folders": "directories"}


class Places(NamedTuple):
    """Where a node has what a transaction needs.

    directory: ours. units: systemd's, for units that survive a boot. lock: held by whoever carries out or recovers.
    """

    directory: str = ledgers.DIRECTORY
    units: str = boot_unit.UNITS
    lock: str = "/run/node-devices-transaction.lock"

    @property
    def open(self):
        """The folder of a transaction that is not over yet."""
        return os.path.join(self.directory, "transaction")

    @property
    def closed(self):
        """The folder of the last one that is over, until its outcome was read."""
        return os.path.join(self.directory, "transaction.closed")

    @property
    def prepared(self):
        """What names of prepared ones begin with."""
        return os.path.join(self.directory, "transaction.new.")

    def left(self):
        """What is there of transactions whose outcome nobody has read."""
        directories = (self.open, self.closed, *glob.glob(self.prepared + "*"))
        return [directory for directory in directories if os.path.isdir(directory)]


class File(NamedTuple):
    """One file.

    content: bytes; None where it is to be removed.
    mode, uid, gid: of the new file. Its extended attributes are the old one's.
    expected_sha256: what it must be before; None where there must be none.
    context: its SELinux context where there is no old file; None without SELinux.
    """

    path: str
    content: bytes | None
    mode: int
    uid: int
    gid: int
    expected_sha256: str | None
    context: str | None = None


class Directory(NamedTuple):
    """A directory to make, with its SELinux context."""

    path: str
    context: str | None = None


class Plan(NamedTuple):
    """A whole transaction.

    identity: tells it from others. owner: a role's name in the ledger.
    files: to be written or removed; none where only a restart is wanted. directories: to be made, outermost first.
    entries: the ledger's new entries by path, None where one goes. undo: whether our change is taken back.
    check: a command that must succeed before anything is written; ``{staged}`` stands for the first file's new text;
        empty where nothing is checked.
    unit: the runtime's service. question: a command that asks the running runtime and answers in JSON.
    spec_dirs: CDI must be on with these directories; None where nothing is asked about it.
    timeout: seconds that the runtime may take to answer.
    """

    identity: str
    owner: str
    files: list[File]
    directories: list[Directory]
    entries: dict[str, Any]
    undo: bool
    check: list[str]
    unit: str
    question: list[str]
    spec_dirs: list[str] | None
    timeout: float

    def save(self, directory):
        """Write it into a transaction's folder, durably."""
        files = [file._asdict() for file in self.files]
        for file in files:
            if file["content"] is not None:
                file["content"] = base64.b64encode(file["content"]).decode("ascii")
        data = dict(self._asdict(), files=files, directories=[each._asdict() for each in self.directories])
        ledgers.write_file(os.path.join(directory, _NAME), json.dumps(data).encode(), 0o600)

    @classmethod
    def load(cls, directory):
        """Read it from a transaction's folder. Raises LedgerConflict where it is not as we wrote it."""
        path = os.path.join(directory, _NAME)
        try:
            with open(path, encoding="utf-8") as file:
                data = {_RENAMED.get(name, name): value for name, value in json.load(file).items()}
            for each in data["files"]:
                if each["content"] is not None:
                    each["content"] = base64.b64decode(each["content"])
            data["files"] = [File(**each) for each in data["files"]]
            data["directories"] = [Directory(**each) for each in data["directories"]]
            return cls(**data)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ledgers.LedgerConflict(
                f"{path} is damaged ({error}), so nobody knows what was under way. See whether the runtime's "
                "configuration is as it should be (a copy of the former one may be beside it, "
                f".config.toml.node-devices-old), put it in order, remove that copy and {directory}"
            ) from error
