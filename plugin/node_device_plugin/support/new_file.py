# SPDX-License-Identifier: Apache-2.0
"""Writes a file under a temporary name, so that its reader sees the whole file or none."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from typing import BinaryIO


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Add the path to errors inside the block. Without this, the error of a failed write does not name the file."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


@contextlib.contextmanager
def new_file(path: str) -> Iterator[BinaryIO]:
    """Create a file, and yield it for writing and renaming. An error inside the block removes the file.

    Only this user may read the file, until the block sets its mode. Raises OSError if ``path`` exists, whatever it is.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def replace(path: str, content: bytes, staged: str, mode: int = 0o600, is_locked: bool = False) -> None:
    """Write a file at ``staged``, which then replaces ``path`` in one step. An error removes it. Raises OSError.

    is_locked: whether the file has a lock (flock) while it is written.
    """
    descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        if is_locked:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.fchmod(descriptor, mode)
        os.replace(staged, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(staged)
        raise
    finally:
        os.close(descriptor)
