# SPDX-License-Identifier: Apache-2.0
"""The ledger records what this collection wrote on a node and what was there before, so that removal is exact.

Runs on nodes: Python 3.9, standard library only. The ledger is one JSON file. An entry is written before its change and
deleted after the change is undone. After a power cut, an entry may describe an unchanged path, which is harmless.

An entry, by absolute path:

    {"kind": "file", "owner": "cdi_specs", "sha256": "...", "mode": 420, "before": null}
    {"kind": "link", "owner": "node_tools /opt/node-devices", "target": "versions/1", "before": null}
    {"kind": "directory", "owners": ["cdi_specs", "device_plugin"], "mode": 493}
    {"kind": "tree", "owner": "node_tools /opt/node-devices"}

``before`` describes the replaced file: {"kind": "file", "content": base64, "mode", "uid", "gid"}, with its extended
``attributes`` (name to base64) if it had any, {"kind": "link", "target"}, or null for none. A directory has an entry
only if we created it. Everything in a tree is ours.
"""

from __future__ import annotations

import base64
import contextlib
import errno
import hashlib
import json
import os
import pathlib
import shutil
import stat

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import kernel_lock

DIRECTORY = "/var/lib/node-devices"
_NAME = "ledger.json"
# Extended attributes that users and tools set, xattr(7); the kernel's own, such as hashes, are excluded.
_ATTRIBUTES = ("user.", "system.posix_acl_access", "security.selinux")
_FORMAT = 1


class LedgerConflict(Exception):
    """The state of the node forbids the requested change; the message says what and why."""


#: Likely cause and fix of file system errors, by error number.
_HINTS = {
    errno.EBUSY: "it is a mount point: change the file at the mount's source",
    errno.EPERM: "it may be immutable: check with lsattr, then run chattr -i",
    errno.EROFS: "change the file at its source, or remount the file system read-write",
}


def sentence(error):
    """Return an exception as a sentence for the user."""
    if isinstance(error, OSError):
        path = error.filename2 or error.filename
        hint = "; " + _HINTS[error.errno] if error.errno in _HINTS else ""
        return f"{path}: {error.strerror}{hint}" if path else str(error)
    if isinstance(error, LedgerConflict):
        return str(error)
    return f"{type(error).__name__}: {error}"


class Ledger:
    """The entries of a node. To write, use it as a context manager, which admits one writer at a time."""

    def __init__(self, directory=DIRECTORY):
        self.directory = directory
        self.path = os.path.join(directory, _NAME)
        self.entries = {}
        self._saved = None
        self._lock = None
        self.read()

    def read(self):
        """Read the entries again. Raises LedgerConflict if the file is damaged or a later release wrote it."""
        self.entries = {}
        try:
            with open(self.path, encoding="utf-8") as file:
                data = json.load(file)
        except FileNotFoundError:
            self._saved = {}
            return
        except (RecursionError, ValueError) as error:
            raise self._damaged(error) from error
        written = data.get("format") if isinstance(data, dict) else None
        if isinstance(written, int) and written > _FORMAT:
            raise LedgerConflict(
                "%s was written by a later release, in format %d: use the collection of that release"
                % (self.path, written)
            )
        if written != _FORMAT or not _are_entries(data.get("entries")):
            raise self._damaged("it does not have the form of a ledger")
        self.entries = data["entries"]
        self._saved = json.loads(json.dumps(self.entries))

    def _damaged(self, why):
        return LedgerConflict(
            f"{self.path} is damaged ({why}): restore it from a backup. Without a backup, remove it and run site.yml, "
            "which recognises its own files by their names, but not what was there before"
        )

    def __enter__(self):
        while self._lock is None:
            make_directory(self.directory)
            # The previous writer may remove the directory while we wait.
            with contextlib.suppress(FileNotFoundError):
                self._lock = kernel_lock.taken(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        remove_leftover(self.path)
        self.read()
        return self

    def __exit__(self, *_exception):
        if not self.entries and self._saved == {}:
            remove_directory_if_empty(self.directory)
        os.close(self._lock)
        self._lock = None

    def save(self):
        """Write changed entries durably; an empty ledger has no file."""
        if self.entries == self._saved:
            return
        if self.entries:
            make_directory(self.directory)
            data = {"format": _FORMAT, "entries": dict(sorted(self.entries.items()))}
            write_file(self.path, (json.dumps(data, indent=1) + "\n").encode(), 0o600)
        else:
            remove_file(self.path)
        self._saved = json.loads(json.dumps(self.entries))

    def of(self, owner):
        """Return the paths of the files, links and trees that ``owner`` wrote."""
        return [path for path, entry in self.entries.items() if entry.get("owner") == owner]

    def directories_of(self, owner):
        """Return the directories that we created and ``owner`` needs, innermost first."""
        paths = [path for path, entry in self.entries.items() if owner in entry.get("owners", ())]
        return sorted(paths, key=lambda path: path.count("/"), reverse=True)


def _are_entries(data):
    """Return whether the data, which may have been edited by hand, has the form of entries."""
    return isinstance(data, dict) and all(
        os.path.isabs(path)
        and isinstance(entry, dict)
        and (isinstance(entry.get("owners"), list) if entry.get("kind") == "directory" else "owner" in entry)
        for path, entry in data.items()
    )


def state_of(path):
    """Return the state of ``path`` as in an entry's ``before``, but with content as bytes; None if nothing exists."""
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return {"kind": "link", "target": os.readlink(path)}
    if stat.S_ISDIR(status.st_mode):
        return {"kind": "directory", "mode": mode, "uid": status.st_uid, "gid": status.st_gid}
    if not stat.S_ISREG(status.st_mode):
        return {"kind": "special file"}
    with open(path, "rb") as file:
        content = file.read()
    state = {"kind": "file", "content": content, "mode": mode, "uid": status.st_uid, "gid": status.st_gid}
    attributes = _attributes_of(path)
    return dict(state, attributes=attributes) if attributes else state


def _attributes_of(path):
    """Return a file's extended attributes in the form of an entry."""
    try:
        names = os.listxattr(path)
    except OSError:
        # The file system has no extended attributes.
        return {}
    names = sorted(name for name in names if name.startswith(_ATTRIBUTES))
    return {name: base64.b64encode(os.getxattr(path, name)).decode("ascii") for name in names}


def storable(state):
    """Return the state of a file or link (or None) in a form for JSON."""
    if state is None or state["kind"] == "link":
        return state
    return dict(state, content=base64.b64encode(state["content"]).decode("ascii"))


def stored(state):
    """Return the state of a file or link (or None) from its form in JSON."""
    if state is None or state["kind"] == "link":
        return state
    return dict(state, content=base64.b64decode(state["content"]))


def sha256(content):
    """Return the SHA-256 hash of bytes, as hex."""
    return hashlib.sha256(content).hexdigest()


def parents(path):
    """Return the directories above a path, innermost first."""
    return [str(parent) for parent in pathlib.PurePosixPath(path).parents]


def missing_parents(path):
    """Return the missing directories above a path, outermost first."""
    return [parent for parent in reversed(parents(path)) if not os.path.lexists(parent)]


def make_directory(path):
    """Create a directory if it is missing; durable if the parent exists, as it normally does."""
    if not os.path.isdir(path):
        os.makedirs(path, mode=0o755, exist_ok=True)
        sync(os.path.dirname(path))


def stage_file(path, content, mode, uid=None, gid=None, attributes=None):
    """Write a file durably beside ``path``, under a name that no program reads; returns that name."""
    remove_leftover(path)
    staged = _staged(path)
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with naming(path), os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if uid is not None:
                os.fchown(file.fileno(), uid, gid)
            for name, value in (attributes or {}).items():
                os.setxattr(file.fileno(), name, base64.b64decode(value))
            os.fsync(file.fileno())
    except BaseException:
        os.unlink(staged)
        raise
    return staged


def remove_leftover(path):
    """Remove the staged file of a killed writer of ``path``. Only the one writer of that path may call this."""
    if os.path.isdir(os.path.dirname(path)):
        remove_file(_staged(path))


def _staged(path):
    """Return a name beside ``path`` that no other program uses or reads as configuration."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.node-devices-new")


@contextlib.contextmanager
def naming(path):
    """Add the path to errors inside the block, because a failed write (full disk) does not name the file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


def put_in_place(staged, path):
    """Rename a staged file to its path, durably."""
    os.replace(staged, path)
    sync(os.path.dirname(path))


def write_file(path, content, mode, uid=None, gid=None, attributes=None):
    """Replace a file so that at any moment it has either the old or the new content."""
    put_in_place(stage_file(path, content, mode, uid, gid, attributes), path)


def write_link(path, target):
    """Create a symbolic link, or replace an existing one in one step."""
    remove_leftover(path)
    staged = _staged(path)
    os.symlink(target, staged)
    put_in_place(staged, path)


def remove_file(path):
    """Remove a file or link if it exists, durably."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    sync(os.path.dirname(path))


def remove_tree(path):
    """Remove a directory and its content if it exists."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
        sync(os.path.dirname(path))


def remove_directory_if_empty(path):
    """Remove a directory if it is empty; returns whether it is gone."""
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    sync(os.path.dirname(path))
    return True


def put_back(path, before):
    """Restore ``path`` to its state before our change."""
    if before is None:
        remove_file(path)
    elif before["kind"] == "link":
        write_link(path, before["target"])
    else:
        write_file(path, before["content"], before["mode"], before["uid"], before["gid"], before.get("attributes"))


def sync(path):
    """Make a file's content, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
