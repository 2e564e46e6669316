"""Remembers failed writes, so that each is repeated after a growing pause and logged once a change."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection
from typing import Any, Callable, NamedTuple

from ..support.bounded_calls import NoAnswer
from ..telemetry.logs import Log, Tries

#: First and longest pause, in seconds, before a failed write is repeated.
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 15.0


class _Failure(NamedTuple):
    """wanted: what the write should write. due: when it may be repeated (monotonic seconds)."""

    wanted: Any
    error: Exception
    pause: float
    due: float


class FailedWrites:
    """The writes that failed, by name. wake: called when a write may be repeated.

    A failed write leaves and removes a file, which wakes a watch of its directory. Without a pause, a full disk would
    keep the plugin busy.
    """

    def __init__(self, log: Log, wake: Callable[[], None]) -> None:
        self._log, self._wake = log, wake
        self._failures: dict[str, _Failure] = {}
        self._tries: dict[str, Tries] = {}

    def waiting(self, name: str, wanted: Any) -> Exception | None:
        """The error of the last write, if the same write must not be repeated yet."""
        failure = self._failures.get(name)
        if failure is None or failure.wanted != wanted or time.monotonic() >= failure.due:
            return None
        return failure.error

    def failed(self, name: str, wanted: Any, failure: Exception, **values: Any) -> None:
        """Note that a write failed now. values: for the log."""
        self._tries.setdefault(name, Tries(self._log)).failed(logging.ERROR, "cannot write a CDI spec", **values)
        if isinstance(failure, NoAnswer):
            # A write that hangs is not begun a second time.
            return
        former = self._failures.get(name)
        same = former is not None and former.wanted == wanted
        pause = min(2 * former.pause, _LAST_PAUSE) if former is not None and same else _FIRST_PAUSE
        self._failures[name] = _Failure(wanted, failure, pause, time.monotonic() + pause)
        # Without a file's event, no scan may be due before the next sweep.
        asyncio.get_running_loop().call_later(pause, self._wake)

    def went_well(self, name: str) -> None:
        """Forget a write's failures."""
        self._failures.pop(name, None)
        self._tries.pop(name, None)

    def keep_only(self, names: Collection[str]) -> None:
        """Forget the failures of all other writes."""
        for name in set(self._tries).difference(names):
            self.went_well(name)
