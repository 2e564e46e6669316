"""Runs calls that may hang, such as a stat on a dead file system, in separate threads."""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Callable, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Key(NamedTuple):
    """Identifies a call. group: the owner of the call, such as a resource. name: the call itself."""

    group: str
    name: str


Call = tuple[Key, Callable[[], T]]

#: Seconds between attempts to start a thread while the process is at its thread limit.
_NEXT_TRY = 0.1


class NoAnswer(TimeoutError):
    """A call hangs or cannot start. The message continues the call's name, e.g. ``did not answer in 5 s``."""


class BoundedCalls:
    """Runs calls one after the other in a thread. limit: maximum seconds for each call.

    Python cannot end a hanging thread. If a call takes longer than ``patience`` (seconds), the call
    keeps its thread, and the next calls run in another thread. Calls with the same key run one at a
    time. The second call waits for the first, up to the first call's limit. At the same time, at
    most ``most`` calls of a group and ``most_at_all`` calls of all groups may hang.
    """

    def __init__(self, limit: float = 5.0, patience: float = 0.1, most: int = 8, most_at_all: int = 32) -> None:
        self._limit = limit
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

    async def run(self, calls: Sequence[Call[T]]) -> dict[Key, T | Exception]:
        """Run all calls. Returns the result or exception of each.

        If a call hangs or cannot start, its exception is NoAnswer.
        """
        answers: dict[Key, T | Exception] = {}
        own: list[_Worker[T]] = []
        due = dict(calls)
        while due:
            self._workers = [worker for worker in self._workers if not worker.is_back]
            for worker in own:
                answers.update(worker.answers)
            due = {key: function for key, function in due.items() if key not in answers}
            under_way = {key: worker for worker in self._workers for key in worker.keys}
            hanging = [worker.current for worker in self._workers if worker.is_given_up]
            of_group = collections.Counter(key.group for key in hanging)
            ready = [call for call in due.items() if call[0] not in under_way and of_group[call[0].group] < self._most]
            awaited = {key: under_way[key] for key in due if key in under_way}
            if ready and len(hanging) < self._most_at_all:
                try:
                    worker = _Worker(ready)
                except RuntimeError as error:
                    answers.update(dict.fromkeys(dict(ready), NoAnswer(f"was not started: {error}")))
                    continue
                own.append(worker)
                self._workers.append(worker)
                await worker.end_or_slow(self._patience)
            elif awaited:
                late = NoAnswer(f"did not answer in {self._limit:g} s")
                answers.update(dict.fromkeys(await self._late_among(awaited), late))
            else:
                number = len(hanging) if ready else self._most
                answers.update(dict.fromkeys(due, NoAnswer("was not started, because %d other calls hang" % number)))
        return answers

    async def _late_among(self, awaited: Mapping[Key, _Worker[Any]]) -> list[Key]:
        """Wait ``patience`` seconds or until one call is done or late. Returns the late calls."""
        ends = {key: worker.since + self._limit for key, worker in awaited.items()}
        await asyncio.wait(
            {worker.ended for worker in awaited.values()},
            timeout=max(0.0, min(self._patience, min(ends.values()) - time.monotonic())),
            return_when=asyncio.FIRST_COMPLETED,
        )
        now = time.monotonic()
        return [
            key for key, worker in awaited.items() if now >= ends[key] and worker.current == key and not worker.is_back
        ]


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
    """A thread that runs calls in order, and stops after a slow call. ended: done when the thread stops."""

    def __init__(self, calls: Sequence[Call[T]]) -> None:
        """Start the thread. Raises RuntimeError at the process's thread limit (TasksMax=)."""
        self.answers: dict[Key, T | Exception] = {}
        self.is_back = False
        self.is_given_up = False
        #: The current or last call, and its start (monotonic seconds).
        self.current, self.since = calls[0][0], time.monotonic()
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self._lock = threading.Lock()
        threading.Thread(target=self._work, name="bounded-calls", daemon=True).start()

    @property
    def keys(self) -> Collection[Key]:
        """The calls of this worker; only the current call if the worker is given up."""
        return (self.current,) if self.is_given_up else dict(self._calls)

    async def end_or_slow(self, patience: float) -> None:
        """Wait until the worker ends or a call takes ``patience`` seconds. Afterwards, the worker starts no call."""
        try:
            while not self.is_back:
                left = self.since + patience - time.monotonic()
                if left <= 0:
                    return
                await asyncio.wait([self.ended], timeout=left)
        finally:
            with self._lock:
                self.is_given_up = True

    def _work(self) -> None:
        try:
            for key, function in self._calls:
                with self._lock:
                    if self.is_given_up:
                        break
                    self.current, self.since = key, time.monotonic()
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
            self.ended.set_result(None)
