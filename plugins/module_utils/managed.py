# SPDX-License-Identifier: Apache-2.0
"""Converges files, directories and links to the wanted state, and records them in the ledger.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib
import copy
import os

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import decisions
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.decisions import ACCESS, CONTENT, OURS, owner_of
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import LedgerConflict

#: Suffix of the original's copy. If someone else changed our file, removal writes this copy beside the file.
BEFORE = ".node-devices-before"
_NOT_REMOVED = "it is empty but cannot be removed (%s): fix that, then run again"


class Report:
    """The changes: made, or in check mode planned."""

    def __init__(self):
        #: Created or changed paths, in the requested order.
        self.written = []
        #: The paths in ``written`` with new content. Programs that read these files must read them again.
        self.contents = []
        #: Paths that were removed or restored.
        self.removed = []
        #: Unwanted paths that stay: dicts with path and reason.
        self.kept = []
        #: Diffs in Ansible's form: before, after, before_header, after_header.
        self.diffs = []

    @property
    def changed(self):
        return bool(self.written or self.removed)

    def add_first(self, earlier):
        """Prepend an earlier report's changes."""
        self.written = earlier.written + self.written
        self.contents = earlier.contents + self.contents
        self.diffs = earlier.diffs + self.diffs

    def add_diff(self, path, before, after):
        texts = [_shown(before), _shown(after)]
        if texts[0] == texts[1]:
            # Ansible shows the headers only if the texts differ, so show mode and owner as text.
            owners = [owner_of(state) for state in (before, after) if state]
            texts = [_access(state, len(set(owners)) > 1) if state else "" for state in (before, after)]
        self.diffs.append(
            {
                "before_header": _header(path, before),
                "after_header": _header(path, after),
                "before": texts[0],
                "after": texts[1],
            }
        )


class Managed:
    """One owner's files.

    ledger: already read; to write, also entered as a context manager.
    owner: a role's name.
    check: whether to only report the changes. The ledger's entries then change in memory alone.
    pending: with ``check``, the owner's files that an earlier task of the play would have written: path to content
        (bytes).
    """

    def __init__(self, ledger, owner, check=False, after_write=lambda path: None, pending=None):
        self.ledger = ledger
        self.owner = owner
        self.check = check
        self.after_write = after_write
        self.pending = dict(pending or {}) if check else {}
        self.report = Report()

    def converge(self, wanted, validate=lambda item, staged: None, keep=()):
        """Write the wanted items, and remove this owner's other files, links, trees and directories.

        wanted: dicts with ``path`` and ``kind`` (file, link, directory). A file also has ``content`` (bytes) and
            ``mode``, a link ``target``, a directory ``mode``.
        validate: called with an item and its staged file. If it raises LedgerConflict, nothing changes.
        keep: unwanted paths that stay.
        """
        self._make(wanted, validate)
        self._take_away({item["path"] for item in wanted} | set(keep))
        return self.report

    def _make(self, wanted, validate):
        wanted = decisions.directories_around(self.ledger.entries, wanted) + wanted
        directories = decisions.missing_directories([item for item in wanted if item["path"] not in self.pending])
        # A real run has created the ledger's directory, which is in no report.
        directories.pop(self.ledger.directory, None)
        changes = [change for change in map(self._change_of, wanted) if change is not None]
        self._report(changes, directories)
        self._claim_directories(wanted, directories)
        entries = decisions.entries_of(wanted, changes, self.owner, self.ledger.entries)
        if self.check:
            # The ledger's entries change in memory, which shows whether a real run would save others.
            self.ledger.entries.update(entries)
        else:
            self._write(changes, directories, validate, entries)

    def _change_of(self, item):
        path = item["path"]
        return decisions.change_of(item, self._state_of(path), self.owner, self.ledger.entries.get(path))

    def _report(self, changes, directories):
        """Add the changes and the new directories to the report."""
        made = [(directory, None, {"kind": "directory", "mode": mode}) for directory, mode in directories.items()]
        for path, before, after in [*((change.path, change.state, change.item) for change in changes), *made]:
            self.report.written.append(path)
            self.report.add_diff(path, before, after)
        self.report.contents += [change.path for change in changes if change.need == CONTENT] + list(directories)

    def _write(self, changes, directories, validate, entries):
        """Make the changes. An error before the ledger's last save leaves all paths as they were.

        The ledger names each directory before its creation, and each file before its replacement.
        """
        self.ledger.save()
        staged = {}
        try:
            for directory, mode in directories.items():
                os.mkdir(directory)
                _set_access(directory, mode)
                self.after_write(directory)
            for change in changes:
                ledgers.remove_leftover(change.path)
                if change.item["kind"] == "file":
                    staged[change.path] = new = _staged(change.item)
                    validate(change.item, new)
                    if change.need == ACCESS:
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
        for change in changes:
            _put_in_place(change.item, staged.get(change.path))
            self.after_write(change.path)

    def _state_of(self, path):
        """Return the state of ``path``. Treats pending files as written."""
        if path in self.pending:
            uid, gid = OURS
            return {"kind": "file", "content": self.pending[path], "mode": 0o644, "uid": uid, "gid": gid}
        return ledgers.state_of(path)

    def _claim_directories(self, wanted, directories):
        """Record the directories to create, and add this owner to our directories that it needs."""
        for directory, mode in directories.items():
            self.ledger.entries[directory] = {"kind": "directory", "owners": [], "mode": mode}
        for item in wanted:
            if item["kind"] == "directory" and item["path"] in self.ledger.entries:
                self.ledger.entries[item["path"]]["mode"] = item["mode"]
            for path in [item["path"], *ledgers.parents(item["path"])]:
                # Files, links and trees have one owner.
                owners = self.ledger.entries.get(path, {}).get("owners")
                if owners is not None and self.owner not in owners:
                    owners.append(self.owner)

    def _give_up_directories(self, directories):
        for directory in reversed(list(directories)):
            # After an error, the entry stays, so that a later run removes the directory.
            with contextlib.suppress(OSError):
                if ledgers.remove_directory_if_empty(directory):
                    del self.ledger.entries[directory]
        self.ledger.save()

    def _take_away(self, stays):
        gone = {path for path in self.ledger.of(self.owner) if path not in stays}
        for path in sorted(gone):
            self._take_away_one(path, self.ledger.entries[path])
        for directory in self.ledger.directories_of(self.owner):
            others = stays | {path for path in self._own_entries() if path not in gone and path != directory}
            is_needed = any(path == directory or path.startswith(directory + "/") for path in others)
            if not is_needed and self._take_away_directory(directory):
                gone.add(directory)
        if not self.check:
            self.ledger.save()

    def _own_entries(self):
        for path, entry in self.ledger.entries.items():
            if entry.get("owner") == self.owner or self.owner in entry.get("owners", ()):
                yield path

    def _take_away_one(self, path, entry):
        """Remove an unchanged file, link or tree, or restore its original."""
        state = self._state_of(path)
        before = ledgers.stored(entry.get("before"))
        is_ours = path in self.pending or (state is not None and decisions.is_ours(state, entry))
        if state != before and not is_ours:
            self._leave(path, state, before)
        elif state is not None and state != before:
            self.report.removed.append(path)
            self.report.add_diff(path, state, before)
            if not self.check:
                if entry["kind"] == "tree":
                    ledgers.remove_tree(path)
                else:
                    ledgers.put_back(path, before)
                    if before is not None:
                        self.after_write(path)
        if not self.check:
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
            if not self.check:
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
                    is_removed = self.check or ledgers.remove_directory_if_empty(directory)
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


def settled(ledger):
    """Return the owners whose files and links all match the ledger. Another convergence would not change them.

    Role cdi_runtime is left out: the adapter of the runtime has read and judged its files.
    """
    owners = {entry["owner"] for entry in ledger.entries.values() if entry["kind"] in ("file", "link")}
    return sorted(owner for owner in owners - {"cdi_runtime"} if _is_settled(ledger, owner))


def _is_settled(ledger, owner):
    try:
        wanted = _as_written(ledger, owner)
        # The entries of the original stay as they are.
        trial = copy.copy(ledger)
        trial.entries = copy.deepcopy(ledger.entries)
        report = None if wanted is None else Managed(trial, owner, check=True).converge(wanted)
    except (LedgerConflict, OSError):
        return False
    return report is not None and not report.changed and not report.kept


def _as_written(ledger, owner):
    """Return an owner's files and directories as wanted items; None if someone else changed a file."""
    wanted = []
    for path in ledger.of(owner):
        entry, state = ledger.entries[path], ledgers.state_of(path)
        if entry["kind"] not in ("file", "link") or state is None or not decisions.is_ours(state, entry):
            return None
        item = {"path": path, "kind": entry["kind"]}
        # A file without a recorded mode, from an early release, counts as changed.
        more = {"content": state["content"], "mode": entry.get("mode")} if entry["kind"] == "file" else {}
        wanted.append({**item, **(more or {"target": entry["target"]})})
    for path in ledger.directories_of(owner):
        wanted.append({"path": path, "kind": "directory", "mode": ledger.entries[path].get("mode", 0o755)})
    return wanted


def _staged(item):
    """Write a file's new version beside its path, and return the version's path.

    Also a file whose mode or owner alone is wrong gets a new version, because its former owner may have it open.
    """
    return ledgers.stage_file(item["path"], item["content"], item["mode"], *OURS)


def _discard(staged):
    for name in staged.values():
        os.unlink(name)


def _put_in_place(item, staged):
    """Put a wanted item in its place. staged: a file's new version."""
    if item["kind"] == "file":
        ledgers.put_in_place(staged, item["path"])
    elif item["kind"] == "link":
        ledgers.write_link(item["path"], item["target"])
    else:
        _set_access(item["path"], item["mode"])


def _set_access(path, mode):
    """Set mode, owner and group. A new directory may have inherited other values from its parent."""
    os.chown(path, *OURS)
    os.chmod(path, mode)


def _access(state, with_owner):
    """Return the mode as text for a diff. with_owner: whether to add the owner."""
    return "mode {:04o}".format(state["mode"]) + (", owner %d:%d" % owner_of(state) if with_owner else "") + "\n"


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
