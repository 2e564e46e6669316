# SPDX-License-Identifier: Apache-2.0
"""Keeps a file's old and new version beside the file, so that neither a change nor an undo needs disk space.

No runtime reads these names as configuration. CRI-O reads all files in its drop-in directory, so both versions are
outside that directory.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat

from .. import ledger as ledgers
from ..node_device_plugin.support.file_identity import identity
from ..writable import mount_points


def old(path):
    """Return the path of the old file's copy."""
    return _beside(path, "old")


def new(path):
    """Return the new file's temporary path."""
    return _beside(path, "new")


def _for_people(path, which, digest):
    """Return a visible path beside a file for a copy that users must find. The name contains the copy's hash."""
    return _beside(path, f"{which}-{digest[:8]}", hidden="")


def _beside(path, which, hidden="."):
    directory, name = os.path.split(path)
    above, inner = os.path.split(directory)
    if directory.endswith(".d") and _one_file_system(directory, above, path):
        directory, name = above, f"{inner}.{name}"
    return os.path.join(directory, f"{hidden}{name}.node-devices-{which}")


def _one_file_system(directory, above, path):
    """Return whether a file in ``above`` can be moved into the subdirectory ``directory``, which may be missing."""
    if os.path.islink(directory) or mount_points().intersection((directory, path)):
        return False
    return not os.path.isdir(directory) or os.stat(directory).st_dev == os.stat(above).st_dev


def look(path):
    """Return the hash of the file at ``path``, or else the kind of what is there; None if nothing exists."""
    state = ledgers.state_of(path)
    return state and (ledgers.sha256(state["content"]) if state["kind"] == "file" else state["kind"])


def seen(path):
    """Return what every write to the file at ``path`` changes; None if nothing exists."""
    return identity(path, with_status=True)


def keep(file):
    """Write a copy of a plan's old file: the plan's content, with the file's mode, owner, times and attributes."""
    copy = old(file.path)
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(file.path)
        if file.before is None or not stat.S_ISREG(status.st_mode):
            return
        # Until the copy has the original's mode, only root may read it.
        ledgers.stage_file(file.path, file.before, 0o600, status.st_uid, status.st_gid, staged=copy)
        shutil.copystat(file.path, copy)
        ledgers.sync(copy)
        ledgers.sync(os.path.dirname(copy))


def stage(file):
    """Write a plan's file beside its path, with the old file's extended attributes."""
    staged, like = new(file.path), file.path if os.path.lexists(file.path) else None
    ledgers.stage_file(file.path, file.content, file.mode, file.uid, file.gid, staged=staged, like=like)
    if like is None:
        label(staged, file.context)
        ledgers.sync(staged)
    ledgers.sync(os.path.dirname(staged))


def label(path, context):
    """Set a path's SELinux context. context: None without SELinux."""
    if context is not None:
        os.setxattr(path, "security.selinux", context.encode() + b"\0", follow_symlinks=False)


def put_in_place(file):
    """Move the new file into place. If the plan has no content for the file, remove the file."""
    if file.content is None:
        ledgers.remove_file(file.path)
    else:
        ledgers.put_in_place(new(file.path), file.path)


def is_theirs(file):
    """Return whether someone else wrote a plan's file: its content is neither the old content nor ours."""
    ours = None if file.content is None else ledgers.sha256(file.content)
    return look(file.path) not in (ours, file.expected_sha256)


def restore(file):
    """Restore the old version of a plan's file. A second call changes nothing.

    Returns whether anything changed. If someone else wrote the file, changes nothing and returns None.
    """
    path = file.path
    there = os.path.lexists(path)
    # If the file was not replaced yet, write nothing, because the file may be impossible to replace.
    kept = file.expected_sha256 is not None and (not os.path.lexists(old(path)) or _all_of(path) == _all_of(old(path)))
    # If someone writes the file between this check and the next system call, that write is lost.
    if is_theirs(file):
        return None
    if kept:
        return False
    if file.expected_sha256 is None:
        ledgers.remove_file(path)
        return there
    ledgers.put_in_place(old(path), path)
    return True


def set_aside(file):
    """Move the old file's copy to a visible path, and return that path. A second call changes nothing."""
    former = _for_people(file.path, "former", file.expected_sha256)
    if os.path.lexists(old(file.path)):
        ledgers.put_in_place(old(file.path), former)
    return former


def swap_back(file):
    """Restore the old file, and keep the other writer's file beside it.

    At any moment, the path has one of the two files. Returns the new path of the other writer's file; None if the other
    writer removed the file.
    """
    path = file.path
    state = ledgers.state_of(path)
    theirs = None
    if state is not None and state["kind"] == "file":
        theirs = _for_people(path, "theirs", ledgers.sha256(state["content"]))
        with contextlib.suppress(FileExistsError):
            os.link(path, theirs)
        ledgers.sync(os.path.dirname(theirs))
    if file.expected_sha256 is None:
        ledgers.remove_file(path)
    else:
        ledgers.put_in_place(_for_people(path, "former", file.expected_sha256), path)
    return theirs


def _all_of(path):
    """Return the state, time and extended attributes, which ``keep`` copies; None if nothing exists."""
    state = ledgers.state_of(path)
    if state is None or state["kind"] != "file":
        return state
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return dict(state, modified=os.lstat(path).st_mtime_ns, attributes=attributes)


def forget(path):
    """Remove both copies if they exist."""
    for copy in (old(path), new(path)):
        # A read-only file system refuses the removal even of a missing file.
        if os.path.lexists(copy):
            ledgers.remove_file(copy)
