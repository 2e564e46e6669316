"""Watches one file for any change: a write in place, a replacement by rename, or a link to another file."""

from __future__ import annotations

import asyncio
import os
from typing import Callable

from ...support.bounded_calls import in_thread
from ...support.file_identity import identity
from .watch import Watch

#: Seconds to wait for a writer that changes a file in several steps (truncate, then write; move away, then create).
_SETTLE = 0.1


async def follow(path: str, on_change: Callable[[], None]) -> None:
    """Call ``on_change`` soon after the file changed, until cancelled.

    Watches directories, because an update of a mounted ConfigMap replaces a link beside the file.
    """
    watch = Watch()
    try:
        await watch.look_at((), buses=False, of_files=await in_thread(_directories, path))
        known = await in_thread(identity, path, with_status=True)
        while True:
            await watch.changed()
            if await in_thread(identity, path, with_status=True) != known:
                await asyncio.sleep(_SETTLE)
                known = await in_thread(identity, path, with_status=True)
                on_change()
            # Resolve the directories again, because links may have other targets now.
            await watch.look_at((), buses=False, of_files=await in_thread(_directories, path))
    finally:
        watch.close()


def _directories(path: str) -> tuple[str, str]:
    return os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))
