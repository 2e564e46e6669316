"""Runs the user's health commands periodically, a few at a time; no check waits for a command."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import Callable

from ...declaration import Device, Resource
from ..commands import environment, run_command
from ..table import UNANSWERED

#: Most commands that run at a time, on the whole node.
_AT_ONCE = 4


class _Asked:
    """A device's last command, when it was started, its task, and the last answer of any command."""

    begun: float = 0.0
    command: tuple[str, ...] = ()
    task: asyncio.Task[None] | None = None
    answer: str | None = UNANSWERED


class UserCommands:
    """on_news: called when a device's answer has changed, and when a run is due. clock: returns monotonic seconds."""

    def __init__(self, on_news: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_news = on_news
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._running: set[asyncio.Task[None]] = set()
        #: When the next run is due, and the timer for that moment.
        self._due: tuple[float, asyncio.TimerHandle] | None = None
        #: By resource and device.
        self._asked: dict[tuple[str, str], _Asked] = {}

    def reason(self, resource: Resource, device: Device) -> str | None:
        """Why the command calls the device unhealthy, or None. Starts the next run if it is due."""
        asked = self._asked.setdefault((resource.name, device.id), _Asked())
        due = asked.begun + resource.health.period
        if asked.command == resource.health.command and asked.task is not None and not asked.task.done():
            # A command slower than its period must end first, or runs would pile up.
            pass
        elif asked.command == resource.health.command and self._clock() < due:
            self._call_for(due)
        else:
            asked.begun, asked.command = self._clock(), resource.health.command
            asked.task = asyncio.ensure_future(self._run(resource, device, asked))
            self._running.add(asked.task)
            asked.task.add_done_callback(self._running.discard)
        return asked.answer

    def keep_only(self, asked: Collection[tuple[str, str]]) -> None:
        """Forget the answers for all other devices, because a returning id may be another device.

        asked: resources and ids of devices.
        """
        for key in self._asked.keys() - asked:
            task = self._asked.pop(key).task
            if task is not None:
                task.cancel()

    async def close(self) -> None:
        """Cancel the timer and end all running commands."""
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
            # The configuration changed the command meanwhile, so this answer does not count.
            return
        self._call_for(asked.begun + health.period)
        if asked.answer != answer:
            asked.answer = answer
            self._on_news()

    def _call_for(self, due: float) -> None:
        """Call ``on_news`` when a run is due, because scans have no period of their own."""
        if self._due is not None:
            if self._due[0] <= due:
                return
            self._due[1].cancel()
        delay = max(0.0, due - self._clock())
        self._due = due, asyncio.get_running_loop().call_later(delay, self._is_due)

    def _is_due(self) -> None:
        self._due = None
        self._on_news()
