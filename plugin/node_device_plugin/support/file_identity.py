"""Which file a path names, told without reading it."""

from __future__ import annotations

import os

Identity = tuple[int, ...]


def identity(path: str, with_status: bool = False) -> Identity | None:
    """Tells a file and its content from the next ones; None where there is no file. An inode alone may be used again.

    with_status: whether a chmod makes another one, too, and a write that restores the modification time.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return (
        *(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns),
        *((found.st_ctime_ns,) if with_status else ()),
    )
