"""Who of a node's instances leads: writes CDI specs and has the status socket.

Up to Kubernetes 1.36 it alone serves: a second instance would take the kubelet's registrations from the first, and the
first from it. From 1.37 the next instance may serve beside it, and leads when it has ended.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from typing import Callable

from ..support.cancel_safe import done_within
from ..support.sockets import SOCKET_DIRECTORY
from ..telemetry.logs import Log
from . import systemd

log = Log(__name__)

#: Seconds between two tries, while another instance ends and where the folder cannot be had.
_ENDING, _NO_DIRECTORY = 0.1, 2.0


class Locked(Exception):
    """This instance cannot serve in a directory; the message says why. pause: seconds until that may be over."""

    def __init__(self, problem: str, pause: float) -> None:
        super().__init__(problem)
        self.pause = pause


class AnotherServes(Locked):
    """Another instance has locked the directory."""


class SingleInstance:
    """Locks device plugin directories for this instance.

    The lock is the kernel's, on the folder of our sockets: it leaves no file, and ends with the process, however that
    dies.
    """

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}

    async def wait(self, directory: str, stop: asyncio.Event, overlaps: bool = False) -> bool:
        """Return as soon as no other instance serves in a directory; False where ``stop`` comes before.

        While one does, say so: an upgrade may start the new one before the old one is gone. overlaps: do not wait then.
        """
        said = ""
        while not stop.is_set():
            try:
                self.take(directory)
                return True
            except Locked as error:
                if overlaps and isinstance(error, AnotherServes):
                    log.info("serving beside another instance until it ends", reason=error)
                    return True
                if str(error) != said:
                    said = str(error)
                    log.error("waiting before serving", reason=said)
                    systemd.notify(f"STATUS={said}; waiting")
                await done_within(stop.wait(), error.pause)
        return False

    def leads(self, directory: str) -> bool:
        """Whether the directory is locked for this instance."""
        return directory in self._locks

    async def lead(self, directory: Callable[[], str]) -> None:
        """Return once the directory is locked for this instance. directory: tells which, it may change meanwhile."""
        while not self.leads(directory()):
            try:
                self.take(directory())
            except Locked as error:
                await asyncio.sleep(error.pause)

    def take(self, directory: str) -> bool:
        """Lock a directory; False where it is ours already. Raises Locked."""
        if directory in self._locks:
            return False
        folder = os.path.join(directory, SOCKET_DIRECTORY)
        try:
            os.makedirs(folder, mode=0o750, exist_ok=True)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise Locked(f"cannot serve in {folder}: {error.strerror}", _NO_DIRECTORY) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise AnotherServes(f"another instance serves in {folder}", _ENDING) from error
        self._locks[directory] = lock
        return True

    def release(self, but: str = "") -> None:
        """Unlock all directories but one."""
        for directory in [each for each in self._locks if each != but]:
            os.close(self._locks.pop(directory))
