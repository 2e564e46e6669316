"""News of devices without polling: inotify on directories, the kernel's messages, and a slow sweep as a net."""

from __future__ import annotations

import asyncio
import logging
from typing import FrozenSet, Iterable, Optional, Set

from ...support.cancel_safe import done_within
from .inotify import UNKNOWN, Inotify
from .uevents import Uevents

log = logging.getLogger(__name__)

#: Seconds between two sweeps: for what neither tells of, e.g. a file system that is mounted over a directory.
SWEEP = 30.0
#: The same where the kernel gives no inotify.
SWEEP_WITHOUT_INOTIFY = 2.0


class Watch:
    """Wakes whoever waits in ``changed``. Belongs to the running event loop; ``close`` it.

    sweep: seconds after which it wakes though nothing happened.
    """

    def __init__(self, sweep: float = SWEEP) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        #: The directories of the news to come, and of those that were told last.
        self._places: Set[str] = set()
        self._told: FrozenSet[str] = frozenset()
        self._sweep = sweep
        self._uevents: Optional[Uevents] = None
        self._inotify: Optional[Inotify] = None
        self._limit_told = False
        self._uevents_refused = False
        try:
            self._inotify = Inotify()
        except OSError as error:
            self._sweep = min(sweep, SWEEP_WITHOUT_INOTIFY)
            log.warning("%s (fs.inotify.max_user_instances); looking every %g s instead", error.strerror, self._sweep)
        else:
            self._loop.add_reader(self._inotify.fileno(), self._on_inotify, self._inotify)

    def close(self) -> None:
        for source in (self._inotify, self._uevents):
            if source is not None:
                self._loop.remove_reader(source.fileno())
                source.close()

    def look_at(self, directories: Iterable[str], buses: bool, of_files: Iterable[str] = ()) -> None:
        """What is to be watched from now on. buses: whether devices on buses are of interest, too.

        of_files: more directories, in which files that are written to are news, too.
        """
        if self._inotify is not None:
            try:
                self._inotify.watch(directories, of_files)
            except OSError as error:
                if not self._limit_told:
                    log.warning("%s: %s; only swept every %g s", error.filename, error.strerror, self._sweep)
                self._limit_told = True
        if buses and self._uevents is None and not self._uevents_refused:
            try:
                self._uevents = Uevents()
            except OSError as error:
                self._uevents_refused = True
                log.warning("no messages of the kernel about devices: %s; swept every %g s", error, self._sweep)
            else:
                self._loop.add_reader(self._uevents.fileno(), self._on_uevents, self._uevents)

    def wake(self) -> None:
        """Something happened that this does not see by itself."""
        self._tell({UNKNOWN})

    def covers(self, directories: Iterable[str]) -> bool:
        """Whether all of these are watched already, as far as they can be."""
        return self._inotify is None or self._limit_told or self._inotify.watched.issuperset(directories)

    def sees(self, directory: str) -> bool:
        """Whether this one is being watched."""
        return self._inotify is not None and directory in self._inotify.watched

    async def changed(self, at_most: Optional[float] = None) -> bool:
        """Return when something happened since the last time (True), or a sweep is due (False).

        at_most: seconds to wait, where that is less than a sweep's.
        """
        seconds = self._sweep if at_most is None else min(at_most, self._sweep)
        await done_within(self._news.wait(), seconds)
        happened = self._news.is_set()
        self._news.clear()
        self._told = frozenset(self._places)
        self._places.clear()
        return happened

    def was_only_in(self, directories: FrozenSet[str]) -> bool:
        """Whether what ``changed`` told of last happened in these directories, and nowhere else."""
        return bool(self._told) and self._told <= directories

    def _on_inotify(self, inotify: Inotify) -> None:
        self._tell(inotify.read())

    def _on_uevents(self, uevents: Uevents) -> None:
        if uevents.read():
            self._tell({UNKNOWN})

    def _tell(self, places: Set[str]) -> None:
        if places:
            self._places |= places
            self._news.set()
