"""One instance a node: a second one would take the kubelet's registrations from the first, and the first from it."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
from typing import AsyncIterator, Optional

from . import systemd
from .sockets import SOCKET_FOLDER
from .waiting import done_within

log = logging.getLogger(__name__)

#: Seconds between two tries, while another instance ends and where the folder cannot be had.
_ENDING, _NO_FOLDER = 0.1, 2.0


@contextlib.asynccontextmanager
async def only_instance(directory: str, stop: asyncio.Event) -> AsyncIterator[bool]:
    """Inside this block no other instance serves in a device plugin directory; False where ``stop`` came before.

    While one does, wait until it ends, and say so: so that an upgrade may start the new one before the old one is gone.
    The lock is the kernel's, on the folder of our sockets: it leaves no file, and ends with the process, however that
    dies. It is that of the directory which the process began with.
    """
    lock = await _locked(os.path.join(directory, SOCKET_FOLDER), stop)
    if lock is None:
        yield False
        return
    try:
        yield True
    finally:
        os.close(lock)


async def _locked(folder: str, stop: asyncio.Event) -> Optional[int]:
    said = ""
    while not stop.is_set():
        try:
            os.makedirs(folder, mode=0o750, exist_ok=True)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            problem, pause = "cannot serve in %s: %s" % (folder, error.strerror), _NO_FOLDER
        else:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            except BlockingIOError:
                os.close(lock)
                problem, pause = "another instance serves in %s; waiting until it ends" % folder, _ENDING
        if problem != said:
            said = problem
            log.error("%s", problem)
            systemd.notify("STATUS=%s" % problem)
        await done_within(stop.wait(), pause)
    return None
