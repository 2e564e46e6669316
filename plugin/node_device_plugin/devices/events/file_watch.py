"""News of one file, whichever way it changes: written in place, replaced by a rename, or linked to another one."""

from __future__ import annotations

import asyncio
import os
from typing import Callable

from ...support.bounded_calls import in_thread
from ...support.file_identity import identity
from .watch import Watch

#: Seconds that whoever writes a file in several steps (truncate and write; move away and write anew) is given.
_SETTLE = 0.1


async def follow(path: str, on_change: Callable[[], None]) -> None:
    """Call ``on_change`` soon after the file changed, until cancelled.

    A mounted ConfigMap changes by a link beside the file that is replaced, so what is watched is its directory.
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
            # Directories come and go, and links point elsewhere.
            await watch.look_at((), buses=False, of_files=await in_thread(_directories, path))
    finally:
        watch.close()


def _directories(path: str) -> tuple[str, str]:
    return os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))
