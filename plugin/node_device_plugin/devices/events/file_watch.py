"""News of one file, whichever way it changes: written in place, replaced by a rename, or linked to another one."""

from __future__ import annotations

import asyncio
import os
from typing import Callable, Optional, Tuple

from .watch import Watch

#: Seconds that whoever writes a file in several steps (truncate and write; move away and write anew) is given.
_SETTLE = 0.1

_Signature = Optional[Tuple[int, ...]]


async def follow(path: str, on_change: Callable[[], None]) -> None:
    """Call ``on_change`` soon after the file changed, until cancelled.

    A mounted ConfigMap changes by a link beside the file that is replaced, so what is watched is its directory.
    """
    watch = Watch()
    try:
        watch.look_at((), buses=False, of_files=_directories(path))
        known = _signature(path)
        while True:
            await watch.changed()
            if _signature(path) != known:
                await asyncio.sleep(_SETTLE)
                known = _signature(path)
                on_change()
            # Directories come and go, and links point elsewhere.
            watch.look_at((), buses=False, of_files=_directories(path))
    finally:
        watch.close()


def _directories(path: str) -> Tuple[str, str]:
    return os.path.dirname(os.path.abspath(path)), os.path.dirname(os.path.realpath(path))


def _signature(path: str) -> _Signature:
    """Tells one content from the next without reading it; None while there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
