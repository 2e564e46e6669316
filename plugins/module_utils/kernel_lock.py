# SPDX-License-Identifier: Apache-2.0
"""The kernel's lock of a file that goes when nobody needs it. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import contextlib
import fcntl
import os


@contextlib.contextmanager
def locked(path, create=True, wait=True):
    """The descriptor of the file at a path while it is ours; closed, and so free, afterwards.

    create: whether it is made where it is not there. wait: for whoever has it.
    Raises FileNotFoundError where it is not there and not made, BlockingIOError where somebody has it and nobody waits.
    """
    descriptor = taken(path, os.O_RDWR | os.O_NOFOLLOW | (os.O_CREAT if create else 0), wait)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def taken(path, flags, wait=True):
    """A descriptor of what is at a path, opened with ``flags`` and locked; closing it frees it. Errors as above."""
    while True:
        descriptor = os.open(path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # Whoever had it before us may have removed it meanwhile: a lock of what nobody else can open holds nobody.
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
