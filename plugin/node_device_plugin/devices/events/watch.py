"""News of devices without polling: inotify on directories, the kernel's messages, and a slow sweep as a net."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable, MutableMapping

from ...support.bounded_calls import BoundedCalls
from ...support.cancel_safe import done_within
from ...telemetry.logs import Log
from .inotify import UNKNOWN, Inotify
from .uevents import Uevents

log = Log(__name__)

#: Seconds between two sweeps: for what neither tells of, e.g. a file system that is mounted over a directory.
SWEEP = 30.0
#: The same where the kernel gives no inotify.
SWEEP_WITHOUT_INOTIFY = 2.0


class Watch:
    """Wakes whoever waits in ``changed``. Belongs to the running event loop; ``close`` it.

    sweep: seconds after which it wakes though nothing happened. calls: where it asks the file system.
    """

    def __init__(self, sweep: float = SWEEP, calls: BoundedCalls | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = calls or BoundedCalls()
        self._news = asyncio.Event()
        #: The directories of the news to come, and of those that were told last.
        self._places: set[str] = set()
        self._told: frozenset[str] = frozenset()
        self._usual_sweep = sweep
        self._uevents: Uevents | None = None
        self._inotify: Inotify | None = None
        self._uevents_refused = False
        #: Why not everything is watched, as it was said last.
        self._unwatched = ""
        self._open()

    def close(self) -> None:
        _UNWATCHED.pop(self, None)
        for source in (self._inotify, self._uevents):
            if source is not None:
                self._loop.remove_reader(source.fileno())
                source.close()

    @property
    def _sweep(self) -> float:
        return min(self._usual_sweep, SWEEP_WITHOUT_INOTIFY) if self._unwatched else self._usual_sweep

    def _open(self) -> Inotify | None:
        """The kernel's watch; None, and said once, while it has none left (fs.inotify.max_user_instances)."""
        if self._inotify is None:
            try:
                self._inotify = Inotify()
            except OSError as error:
                self._say_unwatched(f"{error.strerror} (fs.inotify.max_user_instances)")
            else:
                self._loop.add_reader(self._inotify.fileno(), self._on_inotify, self._inotify)
        return self._inotify

    def _say_unwatched(self, why: str) -> None:
        was, self._unwatched = self._unwatched, why
        _UNWATCHED.pop(self, None)
        others = set(_UNWATCHED.values())
        if why:
            _UNWATCHED[self] = why
            if not was and why not in others:
                log.warning("cannot watch a directory; scanning it instead", reason=why, seconds=self._sweep)
        elif was and was not in others:
            log.info("the kernel watches every directory again")

    def watch_now(self, directory: str | None) -> None:
        """Watch this directory, which never hangs, and nothing else. None: nothing."""
        inotify = self._open()
        if inotify is not None:
            self._say_unwatched("; ".join(inotify.watch_now([] if directory is None else [directory])[:1]))

    async def look_at(self, directories: Iterable[str], buses: bool, of_files: Iterable[str] = ()) -> None:
        """What is to be watched from now on. buses: whether devices on buses are of interest, too.

        of_files: more directories, in which files that are written to are news, too.
        """
        inotify = self._open()
        if inotify is not None:
            self._say_unwatched("; ".join((await inotify.watch(directories, of_files, self._calls))[:1]))
        if buses and self._uevents is None and not self._uevents_refused:
            try:
                self._uevents = Uevents()
            except OSError as error:
                self._uevents_refused = True
                log.warning("cannot receive uevents; scanning instead", error=error, seconds=self._sweep)
            else:
                self._loop.add_reader(self._uevents.fileno(), self._on_uevents, self._uevents)

    def wake(self) -> None:
        """Something happened that this does not see by itself."""
        self._tell({UNKNOWN})

    def covers(self, directories: Iterable[str]) -> bool:
        """Whether all of these are watched already, as far as they can be."""
        return self._inotify is None or bool(self._unwatched) or self._inotify.watched.issuperset(directories)

    def sees(self, directory: str) -> bool:
        """Whether this one is being watched."""
        return self._inotify is not None and directory in self._inotify.watched

    async def changed(self, at_most: float | None = None) -> bool:
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

    def was_only_in(self, directories: frozenset[str]) -> bool:
        """Whether what ``changed`` told of last happened in these directories, and nowhere else."""
        return bool(self._told) and self._told <= directories

    def _on_inotify(self, inotify: Inotify) -> None:
        self._tell(inotify.read())

    def _on_uevents(self, uevents: Uevents) -> None:
        if uevents.read():
            self._tell({UNKNOWN})

    def _tell(self, places: set[str]) -> None:
        if places:
            self._places |= places
            self._news.set()


#: Each Watch that does not watch everything, with the reason: several with one reason say it once.
_UNWATCHED: MutableMapping[Watch, str] = weakref.WeakKeyDictionary()
