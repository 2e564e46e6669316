"""Waiting in ways that never lose a cancellation.

Before Python 3.12 ``asyncio.wait_for`` swallows one that comes together with the result (python/cpython#86296), and
``grpc.aio.Server.stop`` is built on it: a task that is cancelled in that moment would run on for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def done_within(awaitable: Awaitable[Any], seconds: float | None) -> bool:
    """Whether it is done after ``seconds`` at the most (None: however long it takes); cancelled where it is not.

    Its error, if it ends with one, is raised.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        await asyncio.wait([task], timeout=seconds)
    finally:
        is_done = task.done()
        task.cancel()
    if is_done:
        task.result()
    return is_done


async def result_within(awaitable: Awaitable[T], seconds: float) -> T:
    """What it gives. Raises asyncio.TimeoutError, and cancels it, where it is not done after ``seconds``."""
    task = asyncio.ensure_future(awaitable)
    if not await done_within(task, seconds):
        raise asyncio.TimeoutError
    return task.result()


async def to_the_end(awaitable: Awaitable[Any]) -> None:
    """Wait until it is done even where whoever waits is cancelled meanwhile, and then be cancelled.

    For cleaning up that takes a bounded time.
    """
    task = asyncio.ensure_future(awaitable)
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            is_cancelled = True
    if is_cancelled:
        raise asyncio.CancelledError
    task.result()
