# SPDX-License-Identifier: Apache-2.0
"""A kernel lock (flock) on a file that its holder may remove. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import os


@contextlib.contextmanager
def locked(path, create=True, wait=True):
    """Lock the file at a path and yield its descriptor; leaving the context closes the file and releases the lock.

    create: whether to create a missing file. wait: whether to wait for another holder; if not, raise BlockingIOError.
    Raises FileNotFoundError if the file is missing and not created.
    """
    descriptor = taken(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0), wait)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def taken(path, flags, wait=True):
    """Open and lock a path; returns its descriptor. Closing it unlocks the path. flags: of os.open. Raises as above."""
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # The previous holder may have removed the file, and a lock on a removed file excludes no other process.
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
