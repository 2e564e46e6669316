# SPDX-License-Identifier: Apache-2.0
"""Plans what wanted files, directories and links need, makes these changes, and records them in the ledger.

`Managed` makes its changes at once. A `transaction` makes the changes of a plan step by step.
"""

from __future__ import annotations

import contextlib
import os
from typing import Any, NamedTuple

from . import ledger as ledgers
from .ledger import LedgerConflict
from .transaction.plan import Directory, File

#: Suffix of the original's copy. If someone else changed our file, removal writes this copy beside the file.
BEFORE = ".node-devices-before"
#: Owner and group (root) of written files. Another owner could change the file regardless of its mode.
OURS = {"uid": os.geteuid(), "gid": os.getegid()}
# The keys of a state that say what a path is, and who may use it.
_CONTENT, _ACCESS = ("kind", "content", "target"), ("mode", "uid", "gid")
_NOT_REMOVED = "it is empty but cannot be removed (%s): fix that, then run again"
#: The kinds that each kind may replace, its own first.
_REPLACEABLE = {"file": ("file", "link"), "link": ("link", "file"), "directory": ("directory",)}
_NEW_FILE = {"kind": "file", "mode": 0o644, "uid": 0, "gid": 0}
# Part of each path that no other program uses.
_OUR_NAME = "node-device"


class Change(NamedTuple):
    """A path to change.

    before: the path's present state. after: the wanted item, with its owner.
    is_content: whether content, target or kind change, not only mode or owner.
    """

    before: dict[str, Any] | None
    after: dict[str, Any]
    is_content: bool

    @property
    def path(self):
        return self.after["path"]

    @property
    def makes_directory(self):
        return self.before is None and self.after["kind"] == "directory"


def change_of(item, before, owner, entry):
    """Return the change that an item needs; None if it is right. Raises LedgerConflict if we must not make the change.

    before: the path's state. entry: the path's entry in the ledger, or None.
    """
    kind = item["kind"]
    if kind == "directory" and entry is None and before is not None and before["kind"] == kind:
        # A foreign directory keeps its mode and owner.
        return None
    after = {**item, **OURS} if "mode" in item else item
    different = {key for key in (*_CONTENT, *_ACCESS) if key in after and (before or {}).get(key) != after[key]}
    if not different:
        return None
    _refuse(item["path"], before, owner, entry, _REPLACEABLE[kind])
    return Change(before, after, not different.isdisjoint(_CONTENT))


def _refuse(path, state, owner, entry, kinds):
    """Raise LedgerConflict if ``owner`` must not write a path. kinds: which the path may have, the wanted one first."""
    other = (entry or {}).get("owner", owner)
    if other != owner:
        raise LedgerConflict(f"{path} belongs to {other}, so {owner} does not write it")
    if state is not None and state["kind"] not in kinds:
        raise LedgerConflict(f"{path} is a {state['kind']}, but a {kinds[0]} must be there: move it away")


def _entry_of(item, owner, before):
    """Return the ledger's entry of a file or link. before: the original, as JSON data."""
    entry = {"kind": item["kind"], "owner": owner, "before": before}
    if item["kind"] == "link":
        return {**entry, "target": item["target"]}
    return {**entry, "sha256": ledgers.sha256(item["content"]), "mode": item["mode"]}


def entries_of(wanted, changes, owner, entries):
    """Return the ledger's new entries of files and links by path. An existing entry keeps the original that it has.

    entries: the present ones.
    """
    states = {change.path: change.before for change in changes}
    found = {}
    for item in wanted:
        path = item["path"]
        known = entries.get(path)
        # If an unrecorded path is right and has our name, the ledger was lost. With another name, the path belongs to
        # someone else.
        is_someone_elses = known is None and path not in states and _OUR_NAME not in path
        if item["kind"] != "directory" and not is_someone_elses:
            found[path] = _entry_of(item, owner, known["before"] if known else ledgers.storable(states.get(path)))
    return found


def _is_ours(state, entry):
    """Return whether a path is unchanged since we wrote it."""
    if entry["kind"] == "tree":
        return state["kind"] == "directory"
    if state["kind"] != entry["kind"]:
        return False
    if entry["kind"] == "link":
        return state["target"] == entry["target"]
    return ledgers.sha256(state["content"]) == entry["sha256"]


class Report:
    """The changes: made, or in check mode planned."""

    def __init__(self):
        #: Created or changed paths, in the requested order.
        self.written = []
        #: The paths in ``written`` with new content. Programs that read these files must read them again.
        self.contents = []
        #: The paths in ``written`` that the ledger already has like this, so someone else changed or removed them.
        self.edited = []
        #: Paths that were removed or restored.
        self.removed = []
        #: Unwanted paths that stay: dicts with path and reason.
        self.kept = []
        #: Diffs in Ansible's form: before, after, before_header, after_header.
        self.diffs = []

    @property
    def changed(self):
        return bool(self.written or self.removed)

    def add_diff(self, path, before, after):
        texts = [_shown(before), _shown(after)]
        if texts[0] == texts[1]:
            # Ansible shows the headers only if the texts differ, so show mode and owner as text.
            owners = {(state["uid"], state["gid"]) for state in (before, after) if state}
            texts = [_access(state, len(owners) > 1) if state else "" for state in (before, after)]
        headers = {"before_header": _header(path, before), "after_header": _header(path, after)}
        self.diffs.append({**headers, "before": texts[0], "after": texts[1]})


class Managed:
    """One owner's files.

    ledger: already read; to write, also entered as a context manager. Otherwise, as in check mode, only report the
        changes. The ledger's entries then change in memory alone.
    owner: a role's name.
    pending: in check mode, the owner's files that an earlier task of the play would have written: path to content
        (bytes).
    """

    def __init__(self, ledger, owner, after_write=lambda path: None, pending=None):
        self.ledger = ledger
        self.owner = owner
        self.after_write = after_write
        self.pending = {} if ledger.is_entered else pending or {}
        self.report = Report()

    def converge(self, wanted, validate=lambda item, staged: None, keep=()):
        """Write the wanted items, and remove this owner's other files, links, trees and directories.

        wanted: dicts with ``path`` and ``kind`` (file, link, directory). A file also has ``content`` (bytes) and
            ``mode``, a link ``target``, a directory ``mode``.
        validate: called with an item and its staged file. If it raises LedgerConflict, nothing changes.
        keep: unwanted paths that stay.
        """
        self._make(self._with_directories(wanted), validate)
        self._take_away({item["path"] for item in wanted} | set(keep))
        return self.report

    def _with_directories(self, wanted):
        """Return the wanted items, each behind the directories above it that are missing or ours.

        Our directories are wanted, so that their owner and mode are restored, too.
        """
        items = {}
        for item in wanted:
            for path in reversed(ledgers.parents(item["path"])):
                mode = self._mode_of_directory(path)
                # An earlier task would have created the directories of a pending file.
                if mode is not None and (item["path"] not in self.pending or os.path.lexists(path)):
                    items.setdefault(path, {"kind": "directory", "path": path, "mode": mode})
            items[item["path"]] = item
        return list(items.values())

    def _mode_of_directory(self, path):
        """Return the mode that a directory above a wanted item gets; None if the directory stays as it is."""
        if not os.path.lexists(path):
            # A real run has created the ledger's directory, which is in no report.
            return None if path == self.ledger.directory else 0o755
        # A link that has replaced a directory of ours stays.
        return None if os.path.islink(path) else self.ledger.entries.get(path, {}).get("mode")

    def _make(self, wanted, validate):
        changes = [change for change in map(self._change_of, wanted) if change is not None]
        entries = entries_of(wanted, changes, self.owner, self.ledger.entries)
        self._report(changes, entries)
        self._claim_directories(wanted, changes)
        if self.ledger.is_entered:
            self._write(changes, validate, entries)
        else:
            # This shows whether a real run would save other entries.
            self.ledger.entries.update(entries)

    def _change_of(self, item):
        path = item["path"]
        return change_of(item, self._state_of(path), self.owner, self.ledger.entries.get(path))

    def _report(self, changes, entries):
        """Add the changes to the report, new directories last. entries: the ledger's new ones of files and links."""
        known = self.ledger.entries
        for change in sorted(changes, key=lambda change: change.makes_directory):
            path = change.path
            self.report.written.append(path)
            self.report.add_diff(path, change.before, change.after)
            if change.is_content:
                self.report.contents.append(path)
            if path in known and entries.get(path, known[path]) == known[path]:
                self.report.edited.append(path)

    def _write(self, changes, validate, entries):
        """Make the changes. An error before the ledger's last save leaves all paths as they were.

        The ledger names each directory before its creation, and each file before its replacement.
        """
        self.ledger.save()
        staged = {}
        directories = [change for change in changes if change.makes_directory]
        others = [change for change in changes if not change.makes_directory]
        try:
            for change in directories:
                os.mkdir(change.path)
                self._put_in_place(change, None)
            for change in others:
                ledgers.remove_leftover(change.path)
                if change.after["kind"] == "file":
                    # Also if mode or owner alone is wrong, because the file's former owner may have it open.
                    new = ledgers.stage_file(change.path, *map(change.after.get, ("content", "mode", "uid", "gid")))
                    staged[change.path] = new
                    validate(change.after, new)
                    if not change.is_content:
                        # Keep the file's time, so that systemd needs no daemon-reload.
                        os.utime(new, ns=(os.lstat(new).st_atime_ns, os.lstat(change.path).st_mtime_ns))
        except BaseException:
            _discard(staged)
            self._give_up_directories(directories)
            raise
        self.ledger.entries.update(entries)
        try:
            self.ledger.save()
        except OSError:
            # On a full disk, discard the staged files, so that no path changes.
            _discard(staged)
            raise
        for change in others:
            self._put_in_place(change, staged.get(change.path))

    def _put_in_place(self, change, staged):
        """Make a path what is wanted. staged: a file's new version."""
        path, after = change.path, change.after
        if staged:
            ledgers.put_in_place(staged, path)
        elif after["kind"] == "link":
            ledgers.write_link(path, after["target"])
        else:
            # A new directory may have inherited other values from its parent.
            os.chown(path, after["uid"], after["gid"])
            os.chmod(path, after["mode"])
        self.after_write(path)

    def _state_of(self, path):
        """Return the state of ``path``. Treats pending files as written."""
        if path in self.pending:
            return {"kind": "file", "content": self.pending[path], "mode": 0o644, **OURS}
        return ledgers.state_of(path)

    def _claim_directories(self, wanted, changes):
        """Record the directories to create, and add this owner to our directories that it needs."""
        entries = self.ledger.entries
        for change in changes:
            if change.makes_directory:
                entries[change.path] = {"kind": "directory", "owners": [], "mode": change.after["mode"]}
        for item in wanted:
            if item["kind"] == "directory" and item["path"] in entries:
                entries[item["path"]]["mode"] = item["mode"]
            for path in [item["path"], *ledgers.parents(item["path"])]:
                # Files, links and trees have one owner.
                owners = entries.get(path, {}).get("owners")
                if owners is not None and self.owner not in owners:
                    owners.append(self.owner)

    def _give_up_directories(self, changes):
        for change in reversed(changes):
            # After an error, the entry stays, so that a later run removes the directory.
            with contextlib.suppress(OSError):
                if ledgers.remove_directory_if_empty(change.path):
                    del self.ledger.entries[change.path]
        self.ledger.save()

    def _take_away(self, stays):
        files, directories = self.ledger.of(self.owner), self.ledger.directories_of(self.owner)
        gone = {path for path in files if path not in stays}
        for path in sorted(gone):
            self._take_away_one(path, self.ledger.entries[path])
        for directory in directories:
            others = stays | {*files, *directories} - gone - {directory}
            is_needed = any(path == directory or path.startswith(directory + "/") for path in others)
            if not is_needed and self._take_away_directory(directory):
                gone.add(directory)
        self.ledger.save()

    def _take_away_one(self, path, entry):
        """Remove an unchanged file, link or tree, or restore its original."""
        state = self._state_of(path)
        before = ledgers.stored(entry.get("before"))
        is_ours = path in self.pending or (state is not None and _is_ours(state, entry))
        if state != before and not is_ours:
            self._leave(path, state, before)
        elif state is not None and state != before:
            self.report.removed.append(path)
            self.report.add_diff(path, state, before)
            if self.ledger.is_entered:
                if entry["kind"] == "tree":
                    ledgers.remove_tree(path)
                else:
                    ledgers.put_back(path, before)
                    if before is not None:
                        self.after_write(path)
        if self.ledger.is_entered:
            ledgers.remove_leftover(path)
        del self.ledger.entries[path]

    def _leave(self, path, state, before):
        """Leave a path that someone else changed, and write the original beside that path."""
        reason = "it was %s by someone else" % ("changed" if state else "removed")
        if before is not None and os.path.isdir(os.path.dirname(path)):
            copy = path + BEFORE
            reason += f"; the original is in {copy}"
            self.report.written.append(copy)
            self.report.add_diff(copy, ledgers.state_of(copy), before)
            if self.ledger.is_entered:
                ledgers.put_back(copy, before)
                self.after_write(copy)
        self.report.kept.append({"path": path, "reason": reason})

    def _take_away_directory(self, directory):
        """Give up a directory, and remove it if nobody needs it. Returns whether that is done.

        A directory with other files is theirs now. If an empty directory cannot be removed, its entry stays.
        """
        owners = [owner for owner in self.ledger.entries[directory]["owners"] if owner != self.owner]
        if not owners and os.path.isdir(directory):
            left = {os.path.join(directory, name) for name in os.listdir(directory)} - set(self.report.removed)
            if not left:
                state = ledgers.state_of(directory)
                try:
                    is_removed = not self.ledger.is_entered or ledgers.remove_directory_if_empty(directory)
                except OSError as error:
                    self.report.kept.append({"path": directory, "reason": _NOT_REMOVED % error.strerror})
                    return False
                if is_removed:
                    self.report.removed.append(directory)
                    self.report.add_diff(directory, state, None)
        if owners:
            self.ledger.entries[directory]["owners"] = owners
        else:
            del self.ledger.entries[directory]
        return True


def _discard(staged):
    for name in staged.values():
        os.unlink(name)


def _access(state, with_owner):
    """Return the mode as text for a diff. with_owner: whether to add the owner."""
    return "mode {:04o}".format(state["mode"]) + (", owner {uid}:{gid}".format(**state) if with_owner else "") + "\n"


def _header(path, state):
    return path if state is None or "mode" not in state else "{} (mode {:04o})".format(path, state["mode"])


def _shown(state):
    """Return a state or a wanted item as text for a diff."""
    if state is None:
        return ""
    if state["kind"] == "link":
        return "link to {}\n".format(state["target"])
    if state["kind"] != "file":
        return "{}\n".format(state["kind"])
    try:
        return state["content"].decode("utf-8")
    except UnicodeDecodeError:
        return "(%d bytes, sha256 %s)\n" % (len(state["content"]), ledgers.sha256(state["content"]))


def add_file(plan, entries_now, change, without_ours=lambda change, entry: None, context_of=lambda path: None):
    """Add a file that others own to a transaction's plan, with its directories and its ledger entry.

    Raises LedgerConflict if we must not write the file.

    entries_now: the ledger's current entries. With ``undo``, the file has an entry.
    change: path, text that was read (None for no file), and new text (with ``undo``, None restores the original).
    without_ours: called with the change and the file's entry if someone else wrote the file since our last change.
        Returns their text without our keys, which a later undo restores; None if our change is no part of their text.
    context_of: returns a path's SELinux context; None without SELinux.
    """
    path, *texts = change
    read, content = (None if text is None else text.encode() for text in texts)
    state, known = ledgers.state_of(path, read), entries_now.get(path)
    _refuse(path, state, plan.owner, known, ("file",))
    if plan.undo:
        wanted, plan.entries[path] = _undone(known, content, state), None
    else:
        wanted = {**(state or _NEW_FILE), "content": content}
        plan.entries[path] = _entry_of(wanted, plan.owner, _original(change, state, known, without_ours))
        for directory in ledgers.missing_parents(path):
            if directory not in plan.entries:
                plan.entries[directory] = {"kind": "directory", "owners": [plan.owner]}
                plan.directories.append(Directory(directory, context_of(directory)))
    new = {key: (wanted or {**_NEW_FILE, "content": None})[key] for key in ("content", "mode", "uid", "gid")}
    digest = None if read is None else ledgers.sha256(read)
    plan.files.append(File(path, **new, expected_sha256=digest, context=context_of(path), before=read))


def _undone(known, content, state):
    """Return the state after an undo. content: the wanted one; None or the original's content for the original."""
    before = ledgers.stored(known["before"])
    if content is None or (before is not None and before["content"] == content):
        return before
    return {**(state or _NEW_FILE), "content": content}


def _original(change, state, known, without_ours):
    """Return the original for the ledger: the recorded original of an unchanged file, or else their file."""
    if known is None or state is None:
        return ledgers.storable(state)
    if _is_ours(state, known):
        return known["before"]
    text = without_ours(change, known)
    return ledgers.storable(state if text is None else {**state, "content": text.encode()})
