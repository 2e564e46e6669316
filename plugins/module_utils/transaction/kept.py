# SPDX-License-Identifier: Apache-2.0
"""The old and the new of a file, both whole and durable beside it, so that neither way needs space any more.

Runs on nodes: Python 3.9, standard library only. Both have names that no runtime reads as configuration, and are
outside of a folder of drop-ins, of which CRI-O reads every file.
"""

from __future__ import annotations

import contextlib
import os
import shutil

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import ledger as ledgers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.writable import mount_points

_CONTEXT = "security.selinux"


def old(path):
    """Where the copy of what was there is."""
    return _beside(path, "old")


def new(path):
    """Where the text that is to take its place is."""
    return _beside(path, "new")


def _for_people(path, which, state):
    """Where a file is put beside its place for people to find: a name for each content, and for each kind of thing."""
    return _beside(path, "{}-{}".format(which, text_of(state)[:8].replace(" ", "-")), hidden="")


def _beside(path, which, hidden="."):
    directory, name = os.path.split(path)
    above, inner = os.path.split(directory)
    if directory.endswith(".d") and _one_file_system(directory, above, path):
        directory, name = above, f"{inner}.{name}"
    return os.path.join(directory, f"{hidden}{name}.node-devices-{which}")


def _one_file_system(directory, above, path):
    """Whether a file can be renamed from one folder into the one in it, which may not be there yet."""
    if os.path.islink(directory) or mount_points().intersection((directory, path)):
        return False
    return not os.path.isdir(directory) or os.stat(directory).st_dev == os.stat(above).st_dev


def look(path):
    """What is at ``path``, as JSON takes it: its kind, and of a file hash, mode and owner; None for nothing."""
    state = ledgers.state_of(path)
    if state is not None and state["kind"] == "file":
        state["sha256"] = ledgers.sha256(state.pop("content"))
        # They come with the copy.
        state.pop("attributes", None)
    return state


def keep(path):
    """Copy a file, if there is one, with all that belongs to it: mode, owner, times, extended attributes."""
    copy = old(path)
    _discard(copy)
    with contextlib.suppress(FileNotFoundError):
        status = os.lstat(path)
        # Nobody reads it before it has the other's mode.
        os.close(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        shutil.copyfile(path, copy)
        # The owner first: a change of it takes file capabilities and set-id bits away.
        os.chown(copy, status.st_uid, status.st_gid)
        shutil.copystat(path, copy)
        _make_durable(copy)


def stage(file):
    """Write a plan's file beside its place, with the old one's extended attributes."""
    staged = new(file.path)
    _discard(staged)
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with ledgers.naming(file.path), os.fdopen(descriptor, "wb") as stream:
        stream.write(file.content)
    os.chown(staged, file.uid, file.gid)
    if os.path.lexists(file.path):
        shutil.copystat(file.path, staged)
        os.utime(staged)
    else:
        label(staged, file.context)
    os.chmod(staged, file.mode)
    _make_durable(staged)


def label(path, context):
    """Give a path its SELinux context; None where there is no SELinux."""
    if context is not None:
        os.setxattr(path, _CONTEXT, context.encode() + b"\0", follow_symlinks=False)


def put_in_place(file):
    """The new text takes its place; where the plan has none, the file goes."""
    if file.content is None:
        ledgers.remove_file(file.path)
    else:
        ledgers.put_in_place(new(file.path), file.path)


def is_theirs(file, original):
    """Whether somebody else wrote a plan's file: it is neither what was there nor what we wrote.

    original: what ``look`` said of it before we wrote.
    """
    ours = None if file.content is None else ledgers.sha256(file.content)
    return text_of(look(file.path)) not in (ours, text_of(original))


def text_of(state):
    """What tells one text from another in what ``look`` says: a file's hash, else its kind; None for nothing."""
    return state and state.get("sha256", state["kind"])


def restore(file, original):
    """What was there before a plan's file takes its place again. Repeated, it does nothing more.

    original: what ``look`` said of it. Returns whether it did anything; None where somebody else wrote the file, which
    stays.
    """
    path = file.path
    there = os.path.lexists(path)
    # A file that cannot be replaced was not, and putting it back would fail as well.
    kept = original is not None and (not os.path.lexists(old(path)) or _all_of(path) == _all_of(old(path)))
    # Whoever writes between this look and the next system call is overwritten: there is no lock to ask for.
    if is_theirs(file, original):
        return None
    if kept:
        return False
    if original is None:
        ledgers.remove_file(path)
        return there
    ledgers.put_in_place(old(path), path)
    return True


def set_aside(path, original):
    """Put the copy of what was there where people find it. Repeated, it does nothing more. Returns its path."""
    former = _for_people(path, "former", original)
    if os.path.lexists(old(path)):
        ledgers.put_in_place(old(path), former)
    return former


def swap_back(path, original):
    """Put what was there before in its place again, and what somebody else wrote meanwhile beside it.

    At any moment one of both is in the place. Returns where theirs is now; None where they wrote no file.
    """
    state = look(path)
    theirs = None
    if state is not None and state["kind"] == "file":
        theirs = _for_people(path, "theirs", state)
        with contextlib.suppress(FileExistsError):
            os.link(path, theirs)
        ledgers.sync(os.path.dirname(theirs))
    if original is None:
        ledgers.remove_file(path)
    else:
        ledgers.put_in_place(_for_people(path, "former", original), path)
    return theirs


def _all_of(path):
    """All that ``keep`` copies; None for nothing."""
    state = ledgers.state_of(path)
    if state is None or state["kind"] != "file":
        return state
    attributes = {name: os.getxattr(path, name) for name in os.listxattr(path)}
    return dict(state, modified=os.lstat(path).st_mtime_ns, attributes=attributes)


def forget(path):
    """Remove both copies, where they are."""
    if os.path.isdir(os.path.dirname(path)):
        _discard(old(path))
        _discard(new(path))


def _discard(path):
    if os.path.lexists(path):
        ledgers.remove_file(path)


def _make_durable(path):
    ledgers.sync(path)
    ledgers.sync(os.path.dirname(path))
