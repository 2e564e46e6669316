"""Watches for device changes: inotify, kernel uevents and, as a fallback, periodic sweeps."""

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

#: Seconds between two sweeps, for changes without an event, such as a mount over a directory.
SWEEP = 30.0
#: Seconds between two sweeps while inotify does not cover every directory.
SWEEP_WITHOUT_INOTIFY = 2.0


class Watch:
    """Wakes the waiter in ``changed``. Belongs to the running event loop; the owner must call ``close``.

    sweep: seconds until a wake-up without a change.
    """

    def __init__(self, sweep: float = SWEEP) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls = BoundedCalls()
        self._news = asyncio.Event()
        #: The directories changed since the last ``changed``; the directories that it reported.
        self._changed: set[str] = set()
        self._reported: frozenset[str] = frozenset()
        self._usual_sweep = sweep
        self._uevents: Uevents | None = None
        self._inotify: Inotify | None = None
        self._uevents_refused = False
        #: Why a directory is not watched, as last logged; empty if all directories are watched.
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
        """The inotify instance; None, logged once, beyond fs.inotify.max_user_instances."""
        if self._inotify is None:
            try:
                self._inotify = Inotify()
            except OSError as error:
                self._say_unwatched(f"{error.strerror}: raise fs.inotify.max_user_instances")
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
                log.warning("cannot watch a directory; scanning periodically instead", reason=why, seconds=self._sweep)
        elif was and was not in others:
            log.info("all directories are watched again")

    def watch_now(self, directory: str | None) -> None:
        """Watch only this directory, which must never hang. None: watch no directory."""
        inotify = self._open()
        if inotify is not None:
            self._say_unwatched("; ".join(inotify.watch_now([] if directory is None else [directory])[:1]))

    async def look_at(self, directories: Iterable[str], buses: bool, of_files: Iterable[str] = ()) -> None:
        """Set the directories to watch. buses: whether to receive uevents, which then never stop.

        of_files: more directories, in which a write to a file is also a change.
        """
        inotify = self._open()
        if inotify is not None:
            self._say_unwatched("; ".join((await inotify.watch(directories, of_files, self._calls))[:1]))
        if buses and self._uevents is None and not self._uevents_refused:
            try:
                self._uevents = Uevents()
            except OSError as error:
                self._uevents_refused = True
                log.warning("cannot receive uevents; scanning periodically instead", error=error, seconds=self._sweep)
            else:
                self._loop.add_reader(self._uevents.fileno(), self._on_uevents, self._uevents)

    def wake(self) -> None:
        """Report a change that inotify and uevents do not show."""
        self._note({UNKNOWN})

    def covers(self, directories: Iterable[str]) -> bool:
        """Whether all these directories are watched. True also if a directory cannot be watched."""
        return self._inotify is None or bool(self._unwatched) or self._inotify.watched.issuperset(directories)

    def sees(self, directory: str) -> bool:
        """Whether this directory is watched."""
        return self._inotify is not None and directory in self._inotify.watched

    async def changed(self, at_most: float | None = None) -> bool:
        """Wait until something changed since the last call (True) or a sweep is due (False).

        at_most: maximum seconds to wait, if less than the sweep.
        """
        seconds = self._sweep if at_most is None else min(at_most, self._sweep)
        await done_within(self._news.wait(), seconds)
        happened = self._news.is_set()
        self._news.clear()
        self._reported = frozenset(self._changed)
        self._changed.clear()
        return happened

    def was_only_in(self, directories: frozenset[str]) -> bool:
        """Whether all changes that ``changed`` reported last happened in these directories."""
        return bool(self._reported) and self._reported <= directories

    def _on_inotify(self, inotify: Inotify) -> None:
        self._note(inotify.read())

    def _on_uevents(self, uevents: Uevents) -> None:
        if uevents.read():
            self._note({UNKNOWN})

    def _note(self, changed: set[str]) -> None:
        if changed:
            self._changed |= changed
            self._news.set()


#: Each Watch with an unwatched directory, and the reason. Several Watches log one reason once.
_UNWATCHED: MutableMapping[Watch, str] = weakref.WeakKeyDictionary()
