"""Health by a command of the user: run every so often, a few at a time, never waited for."""

from __future__ import annotations

import asyncio
import time
from typing import Callable, Collection, Dict, Optional, Set, Tuple

from ...declaration import Device, Resource
from ..commands import environment, run_command
from ..table import UNANSWERED

#: Commands at a time, on the whole node.
_AT_ONCE = 4


class UserCommands:
    """on_news: called when a device's answer has changed, and when a run is due. clock: gives seconds, monotonic."""

    def __init__(self, on_news: Callable[[], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._on_news = on_news
        self._clock = clock
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._running: Set[asyncio.Task[None]] = set()
        #: When the next run is due, and what calls for it.
        self._due: Optional[Tuple[float, asyncio.TimerHandle]] = None
        #: By resource and device: when which command was last begun, whether it runs still, and the last answer of any.
        self._begun: Dict[Tuple[str, str], Tuple[float, Tuple[str, ...]]] = {}
        self._newest: Dict[Tuple[str, str], asyncio.Task[None]] = {}
        self._answers: Dict[Tuple[str, str], Optional[str]] = {}

    def reason(self, resource: Resource, device: Device) -> Optional[str]:
        """Why the command calls the device unhealthy, or None; begins another run where one is due."""
        key = (resource.name, device.id)
        begun, command = self._begun.get(key, (0.0, None))
        due = begun + resource.health.period
        if command == resource.health.command and not self._newest[key].done():
            # Slower than its period: it ends first, or there would be ever more of them.
            pass
        elif command == resource.health.command and self._clock() < due:
            self._call_for(due)
        else:
            self._begun[key] = self._clock(), resource.health.command
            task = asyncio.ensure_future(self._run(resource, device))
            self._newest[key] = task
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        return self._answers.get(key, UNANSWERED)

    def keep_only(self, resource: Resource, devices: Collection[str]) -> None:
        """Forget what was said of the resource's other devices: one that comes back may be another one."""
        for key in [key for key in self._begun if key[0] == resource.name and key[1] not in devices]:
            del self._begun[key]
            self._newest.pop(key).cancel()
            self._answers.pop(key, None)

    async def close(self) -> None:
        """End what runs."""
        if self._due is not None:
            self._due[1].cancel()
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, resource: Resource, device: Device) -> None:
        key = (resource.name, device.id)
        async with self._turns:
            answer = await run_command(
                resource.health.command, environment(resource, device), float(resource.health.timeout)
            )
        begun, command = self._begun[key]
        if command != resource.health.command:
            # Another configuration asks another command.
            return
        self._call_for(begun + resource.health.period)
        if key not in self._answers or self._answers[key] != answer:
            self._answers[key] = answer
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
