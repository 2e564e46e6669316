# SPDX-License-Identifier: Apache-2.0
"""Reads and writes the ledger: the record of our changes on a node and of the state before them.

The ledger is one JSON file. We write an entry before its change, and delete the entry after the change is undone. After
a power cut, an entry may describe an unchanged path. Such an entry is harmless.

Entries have absolute paths as keys, and values such as these:

    {"kind": "file", "owner": "cdi_specs", "sha256": "...", "mode": 420, "before": null}
    {"kind": "link", "owner": "node_tools /opt/node-devices", "target": "versions/1", "before": null}
    {"kind": "directory", "owners": ["cdi_specs", "device_plugin"], "mode": 493}
    {"kind": "tree", "owner": "node_tools /opt/node-devices"}

``before`` describes a replaced file: {"kind": "file", "content": base64, "mode", "uid", "gid"}. If the file had
extended attributes, ``before`` also has ``attributes``: name to base64. For a link, ``before`` is {"kind": "link",
"target"}. If there was no file, ``before`` is null. A directory has an entry only if we created it. All files in a tree
are ours.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import errno
import functools
import hashlib
import json
import os
import pathlib
import shutil
import stat

from . import kernel_lock
from .node_device_plugin.support.file_identity import identity
from .node_device_plugin.support.new_file import naming, new_file

DIRECTORY = "/var/lib/node-devices"
_NAME = "ledger.json"
#: The directory's mode. The directory is the ledger's lock, so no other user may open it.
MODE = 0o700
# Extended attributes that users and tools set, see xattr(7). Omits the kernel's own attributes, such as hashes.
_ATTRIBUTES = ("user.", "system.posix_acl_access", "security.selinux")
_FORMAT = 1


class LedgerConflict(Exception):
    """The state of the node forbids the requested change. The message says which state and why."""


#: Maps error numbers of file systems to the likely cause and fix.
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
    """The entries of a node. Writers must use the ledger as a context manager, which admits one writer at a time."""

    def __init__(self, directory=DIRECTORY):
        self.directory = directory
        self.path = os.path.join(directory, _NAME)
        self._lock = None
        self.read()

    def read(self):
        """Read the entries. Raises LedgerConflict if the file is damaged or a later release wrote the file."""
        self._saved = _entries_in(self.path, identity(self.path, with_status=True))
        self.entries = copy.deepcopy(self._saved)

    def __enter__(self):
        while self._lock is None:
            make_directory(self.directory, MODE)
            # The previous writer may remove the directory while we wait.
            with contextlib.suppress(FileNotFoundError):
                self._lock = kernel_lock.taken(self.directory, os.O_RDONLY | os.O_DIRECTORY)
        remove_leftover(self.path)
        self.read()
        return self

    def __exit__(self, *exception):
        try:
            if not self.entries and self._saved == {}:
                remove_directory_if_empty(self.directory)
        except OSError as error:
            # An administrator's mount point is not ours to remove.
            if error.errno != errno.EBUSY and exception == (None, None, None):
                raise
        finally:
            os.close(self._lock)
            self._lock = None

    def save(self):
        """Write changed entries durably. Without entries, remove the file.

        Unless the ledger is entered for writing, as in check mode, the entries change in memory alone.
        """
        if self.is_saved or not self.is_entered:
            return
        if self.entries:
            make_directory(self.directory, MODE)
            data = {"format": _FORMAT, "entries": dict(sorted(self.entries.items()))}
            write_file(self.path, (json.dumps(data, indent=1) + "\n").encode(), 0o600)
        else:
            remove_file(self.path)
        self._saved = copy.deepcopy(self.entries)

    @property
    def is_entered(self):
        """Whether the ledger is entered for writing."""
        return self._lock is not None

    @property
    def is_saved(self):
        """Whether the file has these entries."""
        return self.entries == self._saved

    def of(self, owner):
        """Return the paths of the files, links and trees that ``owner`` wrote."""
        return [path for path, entry in self.entries.items() if entry.get("owner") == owner]

    def directories_of(self, owner):
        """Return the directories that we created and ``owner`` needs, innermost first."""
        paths = [path for path, entry in self.entries.items() if owner in entry.get("owners", ())]
        return sorted(paths, key=lambda path: path.count("/"), reverse=True)


@functools.lru_cache(maxsize=1)
def _entries_in(path, _identity):
    """Return a file's entries, which the caller must not change. A process reads an unchanged file once."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except FileNotFoundError:
        return {}
    except (RecursionError, ValueError) as error:
        raise _damaged(path, error) from error
    written = data.get("format") if isinstance(data, dict) else None
    if isinstance(written, int) and written > _FORMAT:
        raise LedgerConflict(
            "%s was written by a later release, in format %d: use the collection of that release" % (path, written)
        )
    if written != _FORMAT or not _are_entries(data.get("entries")):
        raise _damaged(path, "it does not have the form of a ledger")
    return data["entries"]


def _damaged(path, why):
    return LedgerConflict(
        f"{path} is damaged ({why}): restore it from a backup. Without a backup, remove it and run site.yml, "
        "which recognises its own files by their names, but not what was there before"
    )


def _are_entries(data):
    """Return whether the data has the form of entries. A user may have edited the file."""
    return isinstance(data, dict) and all(
        os.path.isabs(path)
        and isinstance(entry, dict)
        and (isinstance(entry.get("owners"), list) if entry.get("kind") == "directory" else "owner" in entry)
        for path, entry in data.items()
    )


def state_of(path, content=None):
    """Return the state of ``path`` in the form of ``before``, but with content as bytes; None if nothing exists.

    content: a file's content, if the caller has read the file.
    """
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
    if content is None:
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
    """Return the state of a file or link (or None) as JSON data."""
    if state is None or state["kind"] == "link":
        return state
    return dict(state, content=base64.b64encode(state["content"]).decode("ascii"))


def stored(state):
    """Return the state of a file or link (or None) from JSON data."""
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


def make_directory(path, mode=0o755):
    """Create a directory and its missing parents, durably. The umask does not affect their mode."""
    for directory in [*missing_parents(path), path]:
        if not os.path.isdir(directory):
            # Another module may create the directory at the same time.
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory)
                # All users may list the parents.
                os.chmod(directory, mode if directory == path else 0o755)
                sync(os.path.dirname(directory))


def stage_file(path, content, mode, uid=None, gid=None, attributes=None, staged=None, like=None):
    """Write a file durably beside ``path``, under a name that no program reads. Returns the file's path.

    attributes: as in an entry. staged: the name to use. like: a file whose extended attributes the new file gets, too.
    """
    staged = staged or _staged(path)
    remove_file(staged)
    with naming(path), new_file(staged) as file:
        file.write(content)
        file.flush()
        if uid is not None:
            os.fchown(file.fileno(), uid, gid)
        if like is not None:
            shutil.copystat(like, staged)
            os.utime(staged)
        for name, value in (attributes or {}).items():
            os.setxattr(file.fileno(), name, base64.b64decode(value))
        # Set the mode last, because chown clears set-id bits.
        os.fchmod(file.fileno(), mode)
        os.fsync(file.fileno())
    return staged


def remove_leftover(path):
    """Remove the staged file of a killed writer of ``path``. Only the current writer of ``path`` may call this."""
    if os.path.isdir(os.path.dirname(path)):
        remove_file(_staged(path))


def _staged(path):
    """Return a path beside ``path`` that no other program uses or reads as configuration."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.node-devices-new")


def put_in_place(staged, path):
    """Rename a staged file to its path, durably."""
    os.replace(staged, path)
    sync(os.path.dirname(path))


def write_file(path, content, mode, uid=None, gid=None, attributes=None):
    """Replace a file atomically and durably."""
    put_in_place(stage_file(path, content, mode, uid, gid, attributes), path)


def write_link(path, target):
    """Create a symbolic link, or replace an existing link atomically."""
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
    """Remove a directory if it is empty. Returns whether the directory no longer exists.

    Raises OSError if an empty directory cannot be removed, for example because it is a mount point.
    """
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError as error:
        # A link in the directory's place is somebody else's.
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            return False
        raise
    sync(os.path.dirname(path))
    return True


def put_back(path, before):
    """Restore the state of ``path`` before our change."""
    if before is None:
        remove_file(path)
    elif before["kind"] == "link":
        write_link(path, before["target"])
    else:
        write_file(path, before["content"], before["mode"], before["uid"], before["gid"], before.get("attributes"))


def sync(path):
    """Make a file's content or a directory's entries durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
