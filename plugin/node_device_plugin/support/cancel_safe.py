"""Waits that never lose a cancellation.

Before Python 3.12, ``asyncio.wait_for`` swallows a cancellation that arrives together with the
result (python/cpython#86296). ``grpc.aio.Server.stop`` uses ``wait_for``, so a task cancelled at
that moment would run forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def done_within(awaitable: Awaitable[Any], seconds: float | None) -> bool:
    """Whether ``awaitable`` is done within ``seconds`` (None: no limit). If not, cancels it.

    Raises the awaitable's error if it ends with an error.
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
    """The result of ``awaitable``.

    If ``awaitable`` is not done within ``seconds``, cancels it and raises asyncio.TimeoutError.
    """
    task = asyncio.ensure_future(awaitable)
    if not await done_within(task, seconds):
        raise asyncio.TimeoutError
    return task.result()


async def to_the_end(awaitable: Awaitable[Any]) -> None:
    """Wait until ``awaitable`` is done, even if the caller is cancelled meanwhile.

    Raises the cancellation afterwards. Use this function for clean-up that takes a bounded time.
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
