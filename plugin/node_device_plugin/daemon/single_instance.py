"""Chooses the leader on a node, which writes the CDI specs and serves the status socket.

Up to Kubernetes 1.36, only the leader serves, because two instances would replace each other's
registrations with the kubelet. From 1.37 on, the next pod of the same DaemonSet may serve beside the
leader. When the leader has ended, the next instance becomes the leader.

Two locks (flock) decide. The leader has locked the directory of the sockets. Every instance that
serves has a shared lock on the file ``instance`` there. The file has the leader's name, and a line
for each other name that may serve beside the leader: a play that switches the mode appends one. So
an instance of another name can neither serve beside the leader nor follow it before all instances
of the leader's name have ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import os
import stat
from typing import Callable

from ..support import lock_holders
from ..support.bounded_reads import beginning_of
from ..support.cancel_safe import done_within
from ..support.sockets import PRIVATE_MODE, SOCKET_DIRECTORY, directory_is_lost, instance_file
from ..telemetry.logs import Log
from . import systemd

log = Log(__name__)

#: Seconds until the next try, while another instance ends and if the directory cannot be opened.
_ENDING, _NO_DIRECTORY = 0.1, 2.0
#: Bytes of the file ``instance``.
_MOST_NAMES = 4096


class Locked(Exception):
    """This instance cannot serve in a directory; the message says why. pause: seconds until the next try."""

    def __init__(self, problem: str, pause: float) -> None:
        super().__init__(problem)
        self.pause = pause


class AnotherServes(Locked):
    """Another instance has locked the directory."""


class SingleInstance:
    """Locks device plugin directories for this instance.

    The locks end with the process, even after SIGKILL. Only root can open the directory, so no other
    user can lock it.

    name: of this instance; empty for a process that belongs to no DaemonSet. overlaps: whether this
    instance may serve beside instances of its name, and without a name beside all others.
    """

    def __init__(self, name: str = "", overlaps: bool = False) -> None:
        self._name, self.overlaps = name, overlaps
        #: By directory: its lock if this instance leads, and the file ``instance`` with its lock.
        self._locks: dict[str, int] = {}
        self._names: dict[str, int] = {}

    async def wait(self, directory: str, stop: asyncio.Event) -> bool:
        """Wait until this instance may serve in a directory: as the leader, or beside the leader.

        Returns False if ``stop`` is set first. Logs each reason to wait. Raises OSError as `take` does.
        """
        said = ""
        while not stop.is_set():
            try:
                self.take(directory)
                return True
            except Locked as error:
                if isinstance(error, AnotherServes) and self.join(directory):
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
        """Lock a directory. Returns False if this instance has the lock already.

        Raises Locked, or OSError if the directory is lost. The process then ends, and sees the new directory after its
        restart.
        """
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
                if directory in self._names:
                    self._write_name(self._names[directory])
                else:
                    self._take_name(directory)
            except BlockingIOError as error:
                who = beginning_of(instance_file(directory)).partition("\n")[0]
                message = f"another instance of the plugin serves in {sockets}{': ' * bool(who)}{who}"
                raise AnotherServes(message, _ENDING) from error
            except OSError as error:
                if directory_is_lost(error):
                    raise
                raise Locked(f"cannot serve in {sockets}: {error.strerror}", _NO_DIRECTORY) from error
            on_failure.pop_all()
        self._locks[directory] = lock
        return True

    def join(self, directory: str) -> bool:
        """Whether this instance may now serve beside the instance that leads in a directory."""
        if not self.overlaps:
            return False
        if directory not in self._names:
            # If nobody has locked the file, the leader is of a release without names, and overlaps.
            with contextlib.suppress(BlockingIOError):
                self._take_name(directory)
        if directory not in self._names:
            with contextlib.ExitStack() as on_failure, contextlib.suppress(OSError):
                file = _opened(directory)
                on_failure.callback(os.close, file)
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                allowed = os.pread(file, _MOST_NAMES, 0).decode("utf-8", "replace").splitlines()
                if os.fstat(file).st_nlink and (not self._name or self._name in allowed):
                    on_failure.pop_all()
                    self._names[directory] = file
        return directory in self._names

    def _take_name(self, directory: str) -> None:
        """Write this instance's name, if no other instance serves. Raises BlockingIOError otherwise."""
        with contextlib.ExitStack() as on_failure:
            try:
                file = _opened(directory)
            except OSError:
                # A full disk takes no new file, but the node needs its devices. The leader then has no name.
                return
            on_failure.callback(os.close, file)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_nlink == 0:
                # An instance that ended has just removed the file.
                raise BlockingIOError
            self._write_name(file)
            # This may release the lock for a moment, and another instance may then be faster.
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            on_failure.pop_all()
        self._names[directory] = file

    def _write_name(self, file: int) -> None:
        name = self._name or ("node-device-plugin.service" if systemd.is_service() else f"process {os.getpid()}")
        with contextlib.suppress(OSError):
            os.ftruncate(file, 0)
            os.pwrite(file, f"{name}\n".encode(), 0)

    def release(self, but: str = "") -> None:
        """Unlock all directories except those in ``but``. The last instance removes its name."""
        for directory in [each for each in self._names if each != but]:
            file = self._names.pop(directory)
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(instance_file(directory))
            os.close(file)
        for directory in [each for each in self._locks if each != but]:
            os.close(self._locks.pop(directory))


def _opened(directory: str) -> int:
    """Open the file with the leader's name. Raises OSError, also if a pod made something else at its path."""
    file = os.open(instance_file(directory), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "is not a regular file")
    return file
