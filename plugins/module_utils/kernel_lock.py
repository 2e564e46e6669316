# SPDX-License-Identifier: Apache-2.0
"""Locks a file with flock. The holder may remove the file.

Runs on nodes (Python 3.9, standard library only) and on controllers, which may have macOS.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time

from .node_device_plugin.support import lock_holders

#: Seconds to wait for another module, which may install an environment.
LIMIT = 600.0
#: Seconds until the holders are looked up the first time and again, and between two tries.
_FIRST_LOOK, _NEXT_LOOK, _PAUSE = 1, 10, 0.05


def locked(path, create=True, limit=None):
    """Lock the file at a path, and return it open for reading and writing. Closing the file releases the lock.

    create: whether to create a missing file. limit: see `taken`.
    Raises FileNotFoundError without ``create`` if the file is missing, and the errors of `taken`.
    """
    flags = os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0)
    return os.fdopen(taken(path, flags, limit), "r+", encoding="utf-8")


def taken(path, flags, limit=None):
    """Open and lock a path. Return its descriptor, whose closing releases the lock. flags: see os.open.

    Whoever may open a path may lock it. So take away other users' permissions, which an earlier release may have given.
    limit: seconds to wait for another holder, by default LIMIT. Our own programs have the same user as this process, so
    a lock that only other users hold ends the wait at once.
    Raises the errors of os.open, and BlockingIOError if the path stays locked. Its message names the holders.
    """
    began = time.monotonic()
    last, next_look = began + (LIMIT if limit is None else limit), began + _FIRST_LOOK
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            mode = stat.S_IMODE(os.fstat(descriptor).st_mode)
            if mode & 0o077:
                os.fchmod(descriptor, mode & 0o700)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # If the previous holder removed the file, this lock is useless. Then open the path again.
            if _is_at(path, descriptor):
                return descriptor
        except BaseException as error:
            os.close(descriptor)
            if not isinstance(error, BlockingIOError):
                raise
        else:
            os.close(descriptor)
            continue
        now = time.monotonic()
        if now >= min(next_look, last):
            next_look = now + _NEXT_LOOK
            _refuse(path, lock_holders.holders(path), is_late=now >= last)
        time.sleep(_PAUSE)


def _refuse(path, found, is_late):
    """Raise BlockingIOError if the wait is too long, or if all holders are other users."""
    if is_late or (found and not any(holder.is_ours for holder in found)):
        pids = " ".join(str(holder.pid) for holder in found)
        fix = f"kill {pids}" if found else "reboot the machine"
        raise BlockingIOError(
            errno.EAGAIN, f"it is locked by {lock_holders.named(found)}: end what holds the lock, e.g. {fix}", path
        )


def _is_at(path, descriptor):
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
