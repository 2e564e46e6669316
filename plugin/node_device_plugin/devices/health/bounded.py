"""Checks that may hang (a path on a dead file system, a driver that does not answer), in threads, with a time limit."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Callable, Dict, List, Optional, Sequence, Tuple

#: A check that is due: its key, and what gives the reason (or None).
Check = Tuple[str, Callable[[], Optional[str]]]


class BoundedChecks:
    """Runs checks one after the other in a thread. limit: seconds that each may take.

    A check that hangs is left alone with its thread, which nobody can end, and the others go on in a new one. Until it
    comes back it is not begun again, so there are no more threads than hanging checks, and never more than ``most``.
    """

    def __init__(self, limit: float, most: int = 8) -> None:
        self._limit = limit
        self._most = most
        self._hanging: Dict[str, _Worker] = {}

    async def run(self, checks: Sequence[Check]) -> Dict[str, Optional[str]]:
        """Every key with its reason."""
        self._hanging = {key: worker for key, worker in self._hanging.items() if not worker.is_back}
        reasons: Dict[str, Optional[str]] = {key: self._overdue() for key, _ in checks if key in self._hanging}
        left = [check for check in checks if check[0] not in self._hanging]
        while left:
            if len(self._hanging) >= self._most:
                reasons.update((key, "not checked: %d other checks hang" % len(self._hanging)) for key, _ in left)
                break
            worker = _Worker(left, asyncio.get_running_loop())
            hangs = await worker.done_but_for(self._limit)
            reasons.update(worker.reasons)
            if hangs is None:
                break
            self._hanging[left[hangs][0]] = worker
            reasons[left[hangs][0]] = self._overdue()
            left = left[hangs + 1 :]
        return reasons

    def _overdue(self) -> str:
        return "its check did not answer in %g s" % self._limit


class _Worker:
    """A thread that does checks until it hangs in one for too long."""

    def __init__(self, checks: Sequence[Check], loop: asyncio.AbstractEventLoop) -> None:
        self.reasons: Dict[str, Optional[str]] = {}
        self.is_back = False
        self._checks: List[Check] = list(checks)
        self._loop = loop
        self._ended = asyncio.Event()
        self._given_up = False
        #: Which check runs, since when.
        self._current = (0, time.monotonic())
        # Daemon: a thread that hangs does not hold up the end of the process.
        threading.Thread(target=self._work, name="health", daemon=True).start()

    async def done_but_for(self, limit: float) -> Optional[int]:
        """Wait for the end: None, or the position of the check that has hung for ``limit`` seconds."""
        while not self._ended.is_set():
            position, since = self._current
            left = since + limit - time.monotonic()
            if left <= 0:
                self._given_up = True
                return position
            ended = asyncio.ensure_future(self._ended.wait())
            try:
                await asyncio.wait([ended], timeout=left)
            finally:
                ended.cancel()
        return None

    def _work(self) -> None:
        for position, (key, check) in enumerate(self._checks):
            self._current = (position, time.monotonic())
            try:
                reason = check()
            except Exception as error:
                reason = "its check failed: %r" % error
            if self._given_up:
                break
            self.reasons[key] = reason
        self.is_back = True
        if not self._given_up:
            try:
                self._loop.call_soon_threadsafe(self._ended.set)
            except RuntimeError:
                # The loop has ended meanwhile.
                return
