# SPDX-License-Identifier: Apache-2.0
"""Locks a file with flock. The holder may remove the file. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import os


@contextlib.contextmanager
def locked(path, create=True, wait=True):
    """Lock the file at a path and yield its descriptor. At the context's end, close the file and release the lock.

    create: whether to create a missing file. wait: whether to wait for another holder.
    Raises FileNotFoundError without ``create`` if the file is missing, BlockingIOError without ``wait`` if the file is
    locked.
    """
    descriptor = taken(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0), wait)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def taken(path, flags, wait=True):
    """Open and lock a path. Return its descriptor, whose closing releases the lock. flags: see os.open.

    Raises the errors of os.open, and BlockingIOError without ``wait`` if the path is locked.
    """
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # If the previous holder removed the file, this lock is useless. Then open the path again.
            if _is_at(path, descriptor):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _is_at(path, descriptor):
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
