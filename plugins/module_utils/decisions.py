# SPDX-License-Identifier: Apache-2.0
"""Decides what wanted files, links and directories need, and what the ledger records about them. Writes nothing.

`managed` acts on the decisions at once; a `transaction` acts on them step by step. Runs on nodes: Python 3.9, standard
library only.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from . import ledger as ledgers
from .ledger import LedgerConflict
from .transaction.plan import Directory, File

#: Owner and group (root) of written files. Another owner could change the file regardless of its mode.
OURS = (os.geteuid(), os.getegid())

#: What an item needs: nothing; another mode or owner; another content, target or kind.
RIGHT, ACCESS, CONTENT = "right", "access", "content"
#: The kinds that each kind may replace.
_REPLACEABLE = {"file": ("file", "link"), "link": ("file", "link"), "directory": ("directory",)}
_NEW_FILE = {"kind": "file", "mode": 0o644, "uid": 0, "gid": 0}
# Part of each path that no other program uses.
_OUR_NAME = "node-device"


class Change(NamedTuple):
    """A path to change. item: the wanted item. state: of the path now. need: ACCESS or CONTENT."""

    item: dict[str, Any]
    state: dict[str, Any] | None
    need: str

    @property
    def path(self):
        return self.item["path"]


def change_of(item, state, owner, entry):
    """Return the change that an item needs; None if it is right. Raises LedgerConflict if we must not make the change.

    entry: the path's entry in the ledger, or None.
    """
    need = _need_of(item, state, entry is not None)
    if need == RIGHT:
        return None
    refuse(item, state, owner, entry, _REPLACEABLE[item["kind"]])
    return Change(item, state, need)


def _need_of(item, state, is_recorded):
    if item["kind"] == "directory" and (state is None or (not is_recorded and state["kind"] == "directory")):
        # `missing_directories` has missing ones. A foreign directory keeps its mode and owner.
        return RIGHT
    is_alike = state is not None and state["kind"] == item["kind"]
    if not is_alike or any(state[key] != item[key] for key in ("content", "target") if key in item):
        return CONTENT
    return ACCESS if "mode" in item and _access_of(state) != _access_of(item) else RIGHT


def owner_of(state):
    """Return a state's uid and gid. Wanted items have none, so return ours for them."""
    return (state["uid"], state["gid"]) if "uid" in state else OURS


def _access_of(state):
    return state["mode"], owner_of(state)


def refuse(item, state, owner, entry, replaceable):
    """Raise LedgerConflict if ``owner`` must not write an item. replaceable: the kinds that the item may replace."""
    other = (entry or {}).get("owner", owner)
    if other != owner:
        raise LedgerConflict("{} belongs to {}, so {} does not write it".format(item["path"], other, owner))
    if state is not None and state["kind"] not in replaceable:
        raise LedgerConflict(
            "{} is a {}, but a {} must be there: move it away".format(item["path"], state["kind"], item["kind"])
        )


def directories_around(entries, wanted):
    """Return our directories above the wanted items as wanted items, so that their owner and mode are restored, too."""
    named = {item["path"] for item in wanted}
    around = {path for item in wanted for path in ledgers.parents(item["path"])} - named
    return [
        {"kind": "directory", "path": path, "mode": entries[path]["mode"]}
        for path in sorted(around & set(entries))
        # Skip a directory that a link has replaced.
        if "mode" in entries[path] and os.path.isdir(path) and not os.path.islink(path)
    ]


def missing_directories(wanted):
    """Return the directories to create, outermost first, each path with its mode."""
    directories = {}
    for item in wanted:
        for directory in ledgers.missing_parents(item["path"]):
            directories.setdefault(directory, 0o755)
        if item["kind"] == "directory" and not os.path.lexists(item["path"]):
            directories[item["path"]] = item["mode"]
    return directories


def entry_of(item, owner, before):
    """Return the ledger's entry of a file or link. before: the original, as JSON data."""
    entry = {"kind": item["kind"], "owner": owner, "before": before}
    if item["kind"] == "link":
        return {**entry, "target": item["target"]}
    return {**entry, "sha256": ledgers.sha256(item["content"]), "mode": item["mode"]}


def entries_of(wanted, changes, owner, entries):
    """Return the ledger's new entries of files and links by path. An existing entry keeps the original that it has.

    entries: the present ones.
    """
    states = {change.path: change.state for change in changes}
    found = {}
    for item in wanted:
        path = item["path"]
        known = entries.get(path)
        # If an unrecorded path is right and has our name, the ledger was lost. With another name, the path belongs to
        # someone else.
        is_someone_elses = known is None and path not in states and _OUR_NAME not in path
        if item["kind"] != "directory" and not is_someone_elses:
            found[path] = entry_of(item, owner, known["before"] if known else ledgers.storable(states.get(path)))
    return found


def is_ours(state, entry):
    """Return whether a path is unchanged since we wrote it."""
    if entry["kind"] == "tree":
        return state["kind"] == "directory"
    if state["kind"] != entry["kind"]:
        return False
    if entry["kind"] == "link":
        return state["target"] == entry["target"]
    return ledgers.sha256(state["content"]) == entry["sha256"]


class Planning:
    """The files, directories and ledger entries of a transaction's plan, which edits files that others own.

    entries_now: the ledger's current entries. owner: a role's name. undo: whether to undo our changes, which all have
    entries.
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
        """Add a file. Raises LedgerConflict if we must not write the file.

        content: the new text; with ``undo``, None restores the original.
        expected_sha256: see File.
        original: if someone else wrote the file since our last change, the text that a later undo restores; else None.
        """
        state, known = ledgers.state_of(path), self._entries_now.get(path)
        refuse({"kind": "file", "path": path}, state, self._owner, known, ("file",))
        if self._undo:
            after, self.entries[path] = _undone(known, content, state), None
        else:
            after = {**(state or _NEW_FILE), "content": content.encode()}
            self.entries[path] = entry_of(after, self._owner, _original(known, state, original))
            self._claim_directories(path)
        access = {key: (after or _NEW_FILE)[key] for key in ("mode", "uid", "gid")}
        context = self._context_of(path)
        self.files.append(
            File(path, after and after["content"], **access, expected_sha256=expected_sha256, context=context)
        )

    def _claim_directories(self, path):
        """Add the missing directories above a path, outermost first."""
        for directory in ledgers.missing_parents(path):
            if directory not in self.entries:
                self.entries[directory] = {"kind": "directory", "owners": [self._owner]}
                self.directories.append(Directory(directory, self._context_of(directory)))


def _undone(known, content, state):
    """Return the state after an undo. content: the wanted text; None or the original's text for the original."""
    before = ledgers.stored(known["before"])
    if content is None or (before is not None and before["content"] == content.encode()):
        return before
    return {**(state or _NEW_FILE), "content": content.encode()}


def _original(known, state, original):
    """Return the original for the ledger: the recorded original of an unchanged file, or the current state."""
    if known is not None and state is not None and is_ours(state, known):
        return known["before"]
    if state is not None and original is not None:
        state = dict(state, content=original.encode())
    return ledgers.storable(state)
