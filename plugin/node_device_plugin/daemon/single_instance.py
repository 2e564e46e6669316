"""Chooses the leader on a node, which writes the CDI specs and serves the status socket.

Up to Kubernetes 1.36, only the leader serves, because two instances would replace each other's
registrations with the kubelet. From 1.37 on, the next instance may serve beside the leader. When
the leader has ended, the next instance becomes the leader.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
from typing import Callable

from ..support import lock_holders
from ..support.cancel_safe import done_within
from ..support.sockets import PRIVATE_MODE, SOCKET_DIRECTORY
from ..telemetry.logs import Log
from . import systemd

log = Log(__name__)

#: Seconds until the next try, while another instance ends and if the directory cannot be opened.
_ENDING, _NO_DIRECTORY = 0.1, 2.0


class Locked(Exception):
    """This instance cannot serve in a directory; the message says why. pause: seconds until the next try."""

    def __init__(self, problem: str, pause: float) -> None:
        super().__init__(problem)
        self.pause = pause


class AnotherServes(Locked):
    """Another instance has locked the directory."""


class SingleInstance:
    """Locks device plugin directories for this instance.

    The lock is an flock(2) on the directory of our sockets. It leaves no file and ends with the
    process, even after SIGKILL. Only root can open the directory, so no other user can lock it.
    """

    def __init__(self) -> None:
        self._locks: dict[str, int] = {}

    async def wait(self, directory: str, stop: asyncio.Event, overlaps: bool = False) -> bool:
        """Wait until no other instance serves in a directory, then lock the directory.

        Returns False if ``stop`` is set first. Logs each reason to wait. overlaps: if another
        instance serves, return True without the lock.
        """
        said = ""
        while not stop.is_set():
            try:
                self.take(directory)
                return True
            except Locked as error:
                if overlaps and isinstance(error, AnotherServes):
                    log.info("serving beside another instance until that instance ends", reason=error)
                    return True
                if str(error) != said:
                    said = str(error)
                    # In the service's sandbox, /proc shows only other instances; in the pod, only the pod's processes.
                    found = lock_holders.holders(os.path.join(directory, SOCKET_DIRECTORY))
                    log.error("waiting before serving", reason=said, holders=lock_holders.named(found))
                    systemd.notify(f"STATUS={said}; waiting")
                await done_within(stop.wait(), error.pause)
        return False

    def leads(self, directory: str) -> bool:
        """Whether this instance has locked the directory."""
        return directory in self._locks

    async def lead(self, directory: Callable[[], str]) -> None:
        """Wait for the lock. directory: returns the path to lock, which a reload may change."""
        while not self.leads(directory()):
            try:
                self.take(directory())
            except Locked as error:
                await asyncio.sleep(error.pause)

    def take(self, directory: str) -> bool:
        """Lock a directory. Returns False if this instance has the lock already. Raises Locked."""
        if directory in self._locks:
            return False
        sockets = os.path.join(directory, SOCKET_DIRECTORY)
        with contextlib.ExitStack() as on_failure:
            try:
                os.makedirs(sockets, mode=PRIVATE_MODE, exist_ok=True)
                lock = os.open(sockets, os.O_RDONLY | os.O_DIRECTORY)
                on_failure.callback(os.close, lock)
                # Whoever may open the directory may lock it. Earlier releases and the kubelet create it for all users.
                if os.fstat(lock).st_mode & 0o077:
                    os.fchmod(lock, PRIVATE_MODE)
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise AnotherServes(f"another instance of the plugin serves in {sockets}", _ENDING) from error
            except OSError as error:
                raise Locked(f"cannot serve in {sockets}: {error.strerror}", _NO_DIRECTORY) from error
            on_failure.pop_all()
        self._locks[directory] = lock
        return True

    def release(self, but: str = "") -> None:
        """Unlock all directories except those in ``but``."""
        for directory in [each for each in self._locks if each != but]:
            os.close(self._locks.pop(directory))
