# SPDX-License-Identifier: Apache-2.0
"""Turns wanted texts into a plan's files, directories and ledger entries.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import LedgerConflict
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.transaction.plan import Directory, File


class Planning:
    """The parts of a plan.

    entries_now: the ledger's current entries. owner: a role's name. undo: whether to undo our change.
    context_of: returns a path's SELinux context; None without SELinux.
    """

    def __init__(self, entries_now, owner, undo, context_of=lambda path: None):
        self._entries_now = entries_now
        self._owner = owner
        self._undo = undo
        self._context_of = context_of
        self.files = []
        self.directories = []
        self.entries = {}

    def add(self, path, content, expected_sha256, original=None):
        """Add a file.

        content: the new text. None restores the original if ``undo`` is set, and otherwise keeps the file.
        expected_sha256: see File.
        original: if someone else wrote the file since our last change, the text that a later undo restores; else None.
        Raises LedgerConflict if we must not write the file.
        """
        state = ledgers.state_of(path)
        if state is not None and state["kind"] != "file":
            raise LedgerConflict("{} is a {}, but a file must be there: move it away".format(path, state["kind"]))
        known = self._entries_now.get(path)
        if known is not None and known["owner"] != self._owner:
            raise LedgerConflict("{} belongs to {}, so {} does not write it".format(path, known["owner"], self._owner))
        if self._undo and known is None:
            raise LedgerConflict(f"the ledger records no change of this collection in {path}")
        wanted = self._undone(known, content, state) if self._undo else self._wanted(content, state)
        if self._undo:
            self.entries[path] = None
        elif _differ(wanted, state):
            self.entries[path] = {
                "kind": "file",
                "owner": self._owner,
                "before": self._before(known, state, original),
                "sha256": ledgers.sha256(wanted["content"]),
                "mode": wanted["mode"],
            }
            self._claim_directories(path)
        if _differ(wanted, state):
            like = wanted or state
            self.files.append(
                File(
                    path=path,
                    content=None if wanted is None else wanted["content"],
                    mode=like["mode"],
                    uid=like["uid"],
                    gid=like["gid"],
                    expected_sha256=expected_sha256,
                    context=self._context_of(path),
                )
            )

    def _wanted(self, content, state):
        if content is None:
            return state
        return dict(state or {"kind": "file", "mode": 0o644, "uid": 0, "gid": 0}, content=content.encode())

    def _undone(self, known, content, state):
        """Return the state after an undo. content: the wanted text; None or the original's text for the original."""
        before = ledgers.stored(known["before"])
        if content is None or (before is not None and before["content"] == content.encode()):
            return before
        return dict(state, content=content.encode())

    def _before(self, known, state, original):
        """Return the original for the ledger: the recorded original of an unchanged file, or the current state."""
        if known is not None and state is not None and ledgers.sha256(state["content"]) == known["sha256"]:
            return known["before"]
        if state is not None and original is not None:
            state = dict(state, content=original.encode())
        return ledgers.storable(state)

    def _claim_directories(self, path):
        """Add the missing directories above a path, outermost first."""
        for directory in ledgers.missing_parents(path):
            if directory not in self.entries:
                self.entries[directory] = {"kind": "directory", "owners": [self._owner]}
                self.directories.append(Directory(directory, self._context_of(directory)))


def _differ(one, other):
    """Return whether two states differ. Ignores extended attributes, because a new file gets the old file's."""
    one, other = (
        state and {key: value for key, value in state.items() if key != "attributes"} for state in (one, other)
    )
    return one != other
