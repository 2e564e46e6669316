"""Health by a command of the user: run every so often, a few at a time, never waited for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Callable

from ...declaration import Device, Resource
from ..commands import environment, run_command
from ..table import UNANSWERED

#: Commands at a time, on the whole node.
_AT_ONCE = 4


class _Asked:
    """A device: when its command was last begun, which one that was, and the last answer of any."""

    begun: float = 0.0
    command: tuple[str, ...] = ()
    task: asyncio.Task[None] | None = None
    answer: str | None = UNANSWERED


class UserCommands:
    """on_news: called when a device's answer has changed, and when a run is due. clock: gives seconds, monotonic."""

    def __init__(self, on_news: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_news = on_news
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()
        #: When the next run is due, and what calls for it.
        self._due: tuple[float, asyncio.TimerHandle] | None = None
        #: By resource and device.
        self._asked: dict[tuple[str, str], _Asked] = {}

    def reason(self, resource: Resource, device: Device) -> str | None:
        """Why the command calls the device unhealthy, or None; begins another run where one is due."""
        asked = self._asked.setdefault((resource.name, device.id), _Asked())
        due = asked.begun + resource.health.period
        if asked.command == resource.health.command and asked.task is not None and not asked.task.done():
            # Slower than its period: it ends first, or there would be ever more of them.
            pass
        elif asked.command == resource.health.command and self._clock() < due:
            self._call_for(due)
        else:
            asked.begun, asked.command = self._clock(), resource.health.command
            asked.task = asyncio.ensure_future(self._run(resource, device, asked))
            self._running.add(asked.task)
            asked.task.add_done_callback(self._running.discard)
        return asked.answer

    def keep_only(self, resource: Resource, devices: Collection[str]) -> None:
        """Forget what was said of the resource's other devices: one that comes back may be another one."""
        for key in [key for key in self._asked if key[0] == resource.name and key[1] not in devices]:
            task = self._asked.pop(key).task
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        """End what runs."""
        if self._due is not None:
            self._due[1].cancel()
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, resource: Resource, device: Device, asked: _Asked) -> None:
        health = resource.health
        async with self._turns:
            answer = await run_command(health.command, environment(resource, device), float(health.timeout))
        if asked.command != health.command:
            # Another configuration asks another command.
            return
        self._call_for(asked.begun + health.period)
        if asked.answer != answer:
            asked.answer = answer
            self._on_news()

    def _call_for(self, due: float) -> None:
        """See to it that somebody asks for the reasons again when a run is due: looks have no period of their own."""
        if self._due is not None:
            if self._due[0] <= due:
                return
            self._due[1].cancel()
        delay = max(0.0, due - self._clock())
        self._due = due, asyncio.get_running_loop().call_later(delay, self._is_due)

    def _is_due(self) -> None:
        self._due = None
        self._on_news()
