# SPDX-License-Identifier: Apache-2.0
"""Identifies a file without reading it."""

from __future__ import annotations

import os

Identity = tuple[int, ...]


def identity(path: str, with_status: bool = False) -> Identity | None:
    """A value that changes with the file or its content; None if the file does not exist.

    The inode number alone is not enough, because a file system may reuse it. with_status: whether
    the value also changes with a chmod or with a write that restores the modification time.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (
        *(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns),
        *((found.st_ctime_ns,) if with_status else ()),
    )
