"""Watches files for any change: a write in place, a replacement by rename, or a link to another file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import Callable

from ...support.bounded_calls import in_thread
from ...support.file_identity import identity
from .watch import Watch

#: Seconds to wait for a writer that changes a file in several steps (truncate, then write; move away, then create).
_SETTLE = 0.1


async def follow(paths: Iterable[str], on_change: Callable[[], None]) -> None:
    """Call ``on_change`` soon after a file changed, until cancelled. An empty path stands for no file.

    This watches directories, because the kubelet updates a mounted ConfigMap by replacing a link beside the file.
    """
    watch, files = Watch(), [path for path in paths if path]
    known: list[object] | None = None
    try:
        while True:
            # The directories are read each time, because links may lead elsewhere by now. The files come after them,
            # because an event may be lost while the watches change.
            await watch.look_at((), buses=False, of_files=await in_thread(_directories, files))
            now = await in_thread(_identities, files)
            if known is None or now == known:
                known = now
                await watch.changed()
            else:
                await asyncio.sleep(_SETTLE)
                known = await in_thread(_identities, files)
                on_change()
    finally:
        watch.close()


def _identities(files: Iterable[str]) -> list[object]:
    return [identity(path, with_status=True) for path in files]


def _directories(files: Iterable[str]) -> tuple[str, ...]:
    found = (os.path.dirname(each) for path in files for each in (os.path.abspath(path), os.path.realpath(path)))
    return tuple(dict.fromkeys(found))
