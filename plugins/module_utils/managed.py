# SPDX-License-Identifier: Apache-2.0
"""Converges files, directories and links to the wanted state, and records them in the ledger.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import contextlib
import copy
import os

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import LedgerConflict

# Owner and group (root) of written files. Another owner could change the file regardless of its mode.
_OURS = (os.geteuid(), os.getegid())

#: Suffix of the original's copy. If someone else changed our file, removal writes this copy beside the file.
BEFORE = ".node-devices-before"
_NOT_REMOVED = "it is empty but cannot be removed (%s): fix that, then run again"
# Part of each path that no other program uses.
_OUR_NAME = "node-device"


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
            owners = [_owner_of(state) for state in (before, after) if state]
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
        wanted = self._directories_around(wanted) + wanted
        states = [(item, self._state_of(item["path"])) for item in wanted]
        todo = [(item, state) for item, state in states if self._differs(item, state)]
        directories = self._missing_directories([item for item in wanted if item["path"] not in self.pending])
        for item, state in todo:
            self._refuse_unsafe(item, state)
            self.report.written.append(item["path"])
            if not _has_content(item, state):
                self.report.contents.append(item["path"])
            self.report.add_diff(item["path"], state, item)
        for directory, mode in directories.items():
            self.report.written.append(directory)
            self.report.contents.append(directory)
            self.report.add_diff(directory, None, {"kind": "directory", "mode": mode})
        self._claim_directories(wanted, directories)
        if self.check:
            # The ledger's entries change in memory, which shows whether a real run would save others.
            self._enter(wanted, todo)
            return
        self.ledger.save()
        staged = []
        try:
            for directory, mode in directories.items():
                os.mkdir(directory)
                _set_access(directory, mode)
                self.after_write(directory)
            for item, state in todo:
                ledgers.remove_leftover(item["path"])
                if item["kind"] == "file":
                    name = ledgers.stage_file(item["path"], item["content"], item["mode"], *_OURS)
                    staged.append(name)
                    validate(item, name)
                    if _has_content(item, state):
                        # The former owner may have the old file open, so replace the file. Keep the file's time, so
                        # that systemd needs no daemon-reload.
                        os.utime(name, ns=(os.lstat(name).st_atime_ns, os.lstat(item["path"]).st_mtime_ns))
        except BaseException:
            for name in staged:
                os.unlink(name)
            self._give_up_directories(directories)
            raise
        self._enter(wanted, todo)
        try:
            self.ledger.save()
        except OSError:
            # On a full disk, discard the staged files, so that no path changes.
            for name in staged:
                os.unlink(name)
            raise
        names = iter(staged)
        for item, _state in todo:
            if item["kind"] == "file":
                ledgers.put_in_place(next(names), item["path"])
            elif item["kind"] == "link":
                ledgers.write_link(item["path"], item["target"])
            else:
                _set_access(item["path"], item["mode"])
            self.after_write(item["path"])

    def _state_of(self, path):
        """Return the state of ``path``. Treats pending files as written."""
        if path in self.pending:
            uid, gid = _OURS
            return {"kind": "file", "content": self.pending[path], "mode": 0o644, "uid": uid, "gid": gid}
        return ledgers.state_of(path)

    def _differs(self, item, state):
        if item["kind"] == "directory":
            # A foreign directory keeps its mode and owner. `_missing_directories` returns missing directories.
            ours = item["path"] in self.ledger.entries
            if state is None or state["kind"] != "directory":
                return state is not None
            return ours and (state["mode"], _owner_of(state)) != (item["mode"], _OURS)
        if not _has_content(item, state):
            return True
        return item["kind"] == "file" and (state["mode"], _owner_of(state)) != (item["mode"], _OURS)

    def _refuse_unsafe(self, item, state):
        owner = self.ledger.entries.get(item["path"], {}).get("owner", self.owner)
        if owner != self.owner:
            raise LedgerConflict("{} belongs to {}, so {} does not write it".format(item["path"], owner, self.owner))
        kind = state["kind"] if state else "file"
        if kind not in ("file", "link") and kind != item["kind"]:
            raise LedgerConflict(
                "{} is a {}, but a {} must be there: move it away".format(item["path"], kind, item["kind"])
            )
        if item["kind"] == "directory" and kind != "directory":
            raise LedgerConflict("{} is a {}, but a directory must be there: move it away".format(item["path"], kind))

    def _directories_around(self, wanted):
        """Return our directories above ``wanted`` as wanted items, so that their owner and mode are restored, too."""
        named = {item["path"] for item in wanted}
        directories = {}
        for item in wanted:
            for path in ledgers.parents(item["path"]):
                entry = self.ledger.entries.get(path, {})
                # Skip a directory that a link has replaced.
                there = os.path.isdir(path) and not os.path.islink(path)
                if entry.get("kind") == "directory" and "mode" in entry and path not in named and there:
                    directories[path] = {"kind": "directory", "path": path, "mode": entry["mode"]}
        return [directories[path] for path in sorted(directories)]

    def _missing_directories(self, wanted):
        """Return the directories to create, outermost first, each path with its mode."""
        directories = {}
        for item in wanted:
            for directory in ledgers.missing_parents(item["path"]):
                # A real run has created the ledger's directory, which is in no report.
                if directory == self.ledger.directory:
                    continue
                directories.setdefault(directory, 0o755)
            if item["kind"] == "directory" and not os.path.lexists(item["path"]):
                directories[item["path"]] = item["mode"]
        return directories

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

    def _enter(self, wanted, todo):
        """Record the files and links to write. An existing record keeps the content that it first saved."""
        states = {item["path"]: state for item, state in todo}
        for item in wanted:
            path = item["path"]
            known = self.ledger.entries.get(path)
            is_right = path not in states and known is None
            if item["kind"] == "directory" or (is_right and _OUR_NAME not in path):
                continue
            # If an unrecorded path is right and has our name, the ledger was lost. With another name, the path belongs
            # to someone else.
            before = known["before"] if known else ledgers.storable(states.get(path))
            entry = {"kind": item["kind"], "owner": self.owner, "before": before}
            if item["kind"] == "file":
                entry.update(sha256=ledgers.sha256(item["content"]), mode=item["mode"])
            else:
                entry.update(target=item["target"])
            self.ledger.entries[path] = entry

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
        is_ours = path in self.pending or (state is not None and _is_ours(state, entry))
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
    """Return the owners whose files and links all match the ledger. Another convergence would not change them."""
    owners = {entry["owner"] for entry in ledger.entries.values() if entry["kind"] in ("file", "link")}
    return sorted(owner for owner in owners if _is_settled(ledger, owner))


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
        if entry["kind"] not in ("file", "link") or state is None or not _is_ours(state, entry):
            return None
        item = {"path": path, "kind": entry["kind"]}
        # A file without a recorded mode, from an early release, counts as changed.
        more = {"content": state["content"], "mode": entry.get("mode")} if entry["kind"] == "file" else {}
        wanted.append({**item, **(more or {"target": entry["target"]})})
    for path in ledger.directories_of(owner):
        wanted.append({"path": path, "kind": "directory", "mode": ledger.entries[path].get("mode", 0o755)})
    return wanted


def _is_ours(state, entry):
    """Return whether a path is unchanged since we wrote it."""
    if entry["kind"] == "tree":
        return state["kind"] == "directory"
    if state["kind"] != entry["kind"]:
        return False
    if entry["kind"] == "link":
        return state["target"] == entry["target"]
    return ledgers.sha256(state["content"]) == entry["sha256"]


def _has_content(item, state):
    """Return whether a state has the wanted kind and content. Ignores mode and owner."""
    if state is None or state["kind"] != item["kind"]:
        return False
    return all(state[key] == item[key] for key in ("content", "target") if key in item)


def _owner_of(state):
    """Return a state's uid and gid. Wanted items have none, so return ours for them."""
    return (state["uid"], state["gid"]) if "uid" in state else _OURS


def _set_access(path, mode):
    """Set mode, owner and group. A new directory may have inherited other values from its parent."""
    os.chown(path, *_OURS)
    os.chmod(path, mode)


def _access(state, with_owner):
    """Return the mode as text for a diff. with_owner: whether to add the owner."""
    return "mode {:04o}".format(state["mode"]) + (", owner %d:%d" % _owner_of(state) if with_owner else "") + "\n"


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
