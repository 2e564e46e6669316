"""Runs tasks until the process ends or a caller stops them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


class TaskGroup:
    """Keeps long-running tasks. If a task ends by itself, ``defect`` gets its error."""

    def __init__(self) -> None:
        #: Fails with the error of the first task that ended by itself; never has a result.
        self.defect: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Start ``work``, which must run until it is stopped."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    async def stop(self, *tasks: asyncio.Task[Any]) -> None:
        """Cancel these tasks (without arguments, all tasks) and wait until they have cleaned up."""
        ending = tasks or tuple(self._tasks)
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def run(self) -> None:
        """Wait until a task ends by itself, and raise its error. At the end, stop all tasks."""
        try:
            await asyncio.wait([self.defect])
            self.defect.result()
        finally:
            await self.stop()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or self.defect.done():
            return
        self.defect.set_exception(task.exception() or RuntimeError(f"{task!r} has ended"))
