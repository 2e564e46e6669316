"""Runs calls that may hang, such as a stat on a dead file system, in separate threads."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, Generic, NamedTuple, TypeVar

from . import threads

T = TypeVar("T")


class Key(NamedTuple):
    """Identifies a call. group: the owner of the call, such as a resource. name: the call itself."""

    group: str
    name: str


Call = tuple[Key, Callable[[], T]]

#: Fields 14 and 15 of /proc/PID/task/TID/stat are the CPU time, see proc(5); these follow the name in parentheses.
_CPU_TIME = slice(11, 13)
#: The share of its time for which a busy call uses the CPU. A call that hangs uses none; other programs use the rest.
_BUSY_SHARE = 0.05
#: Seconds between attempts to start a thread while the process is at its thread limit.
_NEXT_TRY = 0.1


class NoAnswer(TimeoutError):
    """A call hangs or cannot start. The message continues the call's name, e.g. ``did not answer in 5 s``.

    later: gets the result or exception of the call when it ends after all; None if it was not started.
    """

    later: asyncio.Future[Any] | None = None


class BoundedCalls:
    """Runs calls one after the other in a thread.

    limit: maximum seconds for each call. busy: the same while the call uses the CPU, because such a call has much to do
    and does not hang.

    Python cannot end a hanging thread. If a call takes longer than ``patience`` (seconds), the call
    keeps its thread, and the next calls run in another thread. Calls with the same key run one at a
    time. The second call waits for the first, up to the first call's limit. At the same time, at
    most ``most`` calls of a group and ``most_at_all`` calls of all groups may hang.
    """

    def __init__(
        self, limit: float = 5.0, patience: float = 0.1, most: int = 8, most_at_all: int = 32, busy: float = 0.0
    ) -> None:
        self.limit, self._busy = limit, max(busy, limit)
        self._patience = min(patience, limit)
        self._most, self._most_at_all = most, most_at_all
        #: Every running worker, even if no caller waits for it any longer.
        self._workers: list[_Worker[Any]] = []

    async def call(self, key: Key, function: Callable[[], T]) -> T:
        """Run one call. Raises the call's exception, or NoAnswer if it hangs or cannot start."""
        answer = (await self.run([(key, function)]))[key]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """Like ``call``, for a function that runs for no group. Its name is the key."""
        return await self.call(Key("", function.__name__), functools.partial(function, *arguments))

    async def run(self, calls: Sequence[Call[T]], waits: bool = True) -> dict[Key, T | Exception]:
        """Run all calls. Returns the result or exception of each.

        If a call hangs or cannot start, its exception is NoAnswer. waits: whether to wait longer for busy calls.
        """
        answers: dict[Key, T | Exception] = {}
        own: list[_Worker[T]] = []
        while True:
            for worker in own:
                answers.update(worker.answers)
            due = {key: function for key, function in calls if key not in answers}
            if not due:
                return answers
            self._workers = [worker for worker in self._workers if not worker.is_back]
            under_way = {key: worker for worker in self._workers for key in worker.keys}
            hanging = [worker.current.group for worker in self._workers if worker.is_given_up]
            ready = [
                call for call in due.items() if call[0] not in under_way and hanging.count(call[0].group) < self._most
            ]
            awaited = {key: under_way[key] for key in due if key in under_way}
            if ready and len(hanging) < self._most_at_all:
                try:
                    worker = _Worker(ready)
                except RuntimeError as error:
                    answers.update(dict.fromkeys(dict(ready), NoAnswer(f"was not started: {error}")))
                    continue
                own.append(worker)
                self._workers.append(worker)
                await worker.end_or_slow(self._patience, self.limit)
            elif awaited:
                for key, seconds in (await self._late_among(awaited, self._busy if waits else self.limit)).items():
                    answers[key] = late = NoAnswer(f"did not answer in {seconds:g} s")
                    late.later = awaited[key].ended
            else:
                number = len(hanging) if ready else self._most
                answers.update(dict.fromkeys(due, NoAnswer("was not started, because %d other calls hang" % number)))

    async def _late_among(self, awaited: Mapping[Key, _Worker[Any]], busy: float) -> dict[Key, float]:
        """Wait ``patience`` seconds or until one call is done or late. Returns the late calls with their limits."""
        ends = {key: worker.since + self.limit for key, worker in awaited.items()}
        await asyncio.wait(
            {worker.ended for worker in awaited.values()},
            timeout=max(0.0, min(self._patience, min(ends.values()) - time.monotonic())),
            return_when=asyncio.FIRST_COMPLETED,
        )
        now = time.monotonic()
        late = {}
        for key, worker in awaited.items():
            if now < ends[key] or worker.current != key or worker.is_back:
                continue
            if busy <= self.limit:
                late[key] = self.limit
            elif now >= worker.since + busy:
                late[key] = busy
            elif not worker.is_busy():
                late[key] = self.limit
        if not late and min(ends.values()) <= now:
            await asyncio.sleep(self._patience)
        return late


async def in_thread(function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
    """Like asyncio.to_thread, but waits until a thread can start, and does not delay the exit."""
    key = Key("", "")
    while True:
        try:
            worker = _Worker([(key, functools.partial(function, *arguments, **keywords))])
            break
        except RuntimeError:
            await asyncio.sleep(_NEXT_TRY)
    await worker.ended
    answer = worker.answers[key]
    if isinstance(answer, Exception):
        raise answer
    return answer


class _Worker(Generic[T]):
    """A thread that runs calls in order, and stops after a slow call.

    ended: gets the result or exception of the last call when the thread stops.
    """

    def __init__(self, calls: Sequence[Call[T]]) -> None:
        """Start the thread. Raises RuntimeError at the process's thread limit (TasksMax=)."""
        self.answers: dict[Key, T | Exception] = {}
        self.is_back = False
        self.is_given_up = False
        #: The current or last call, and its start (monotonic seconds).
        self.current, self.since = calls[0][0], time.monotonic()
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[T | Exception] = self._loop.create_future()
        self._awaited: asyncio.Future[None] | None = None
        self._lock = threading.Lock()
        #: The CPU seconds of the thread before its current call.
        self._used_before = 0.0
        #: Of the thread, in the kernel; 0 before it begins.
        self._native_id = 0
        threads.start(self._work)

    @property
    def keys(self) -> Collection[Key]:
        """The calls of this worker; only the current call if the worker is given up."""
        return (self.current,) if self.is_given_up else dict(self._calls)

    def is_busy(self) -> bool:
        """Whether the current call has used the CPU for ``_BUSY_SHARE`` of its time."""
        try:
            with open(f"/proc/self/task/{self._native_id}/stat", "rb") as file:
                ticks = file.read().rpartition(b")")[2].split()[_CPU_TIME]
        except OSError:
            # The thread has not begun, or has ended.
            return True
        used = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK") - self._used_before
        return used >= _BUSY_SHARE * (time.monotonic() - self.since)

    async def end_or_slow(self, patience: float, limit: float) -> None:
        """Wait until the worker ends or a call takes ``patience`` seconds. Afterwards, the worker starts no call.

        limit: maximum seconds until the thread begins. On a busy machine, another thread would begin even later.
        """
        try:
            while not self.is_back:
                left = self.since + (patience if self._native_id else limit) - time.monotonic()
                if left <= 0:
                    return
                self._awaited = self._loop.create_future()
                timer = self._loop.call_later(min(left, patience), self._wake)
                try:
                    await self._awaited
                finally:
                    timer.cancel()
        finally:
            with self._lock:
                self.is_given_up = True

    def _wake(self) -> None:
        """Wake ``end_or_slow``. asyncio.wait would take two more turns of the event loop."""
        if self._awaited is not None and not self._awaited.done():
            self._awaited.set_result(None)

    def _work(self) -> None:
        self.since, self._native_id = time.monotonic(), threading.get_native_id()
        try:
            for key, function in self._calls:
                with self._lock:
                    if self.is_given_up:
                        break
                    self.current, self.since, self._used_before = key, time.monotonic(), time.thread_time()
                try:
                    self.answers[key] = function()
                except Exception as error:
                    self.answers[key] = error
        finally:
            self.is_back = True
            # If the event loop is closed, call_soon_threadsafe raises RuntimeError.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self.ended.done():
            # A thread that starts too late runs no call.
            self.ended.set_result(self.answers.get(self.current, NoAnswer("was not started")))
        self._wake()
