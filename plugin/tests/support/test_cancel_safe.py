"""Waiting never loses a cancellation, not even one that comes together with the result."""

import asyncio

import pytest

from node_device_plugin.support.cancel_safe import done_within, to_the_end


async def test_whether_it_is_done_in_time() -> None:
    assert await done_within(asyncio.sleep(0), 5)
    assert await done_within(asyncio.sleep(0), None)
    never = asyncio.get_running_loop().create_future()
    assert not await done_within(never, 0.01)
    assert never.cancelled()


async def test_an_error_is_raised() -> None:
    failed = asyncio.get_running_loop().create_future()
    failed.set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await done_within(failed, 5)


async def test_a_cancellation_with_the_result_is_not_lost() -> None:
    result = asyncio.get_running_loop().create_future()
    waiting = asyncio.ensure_future(done_within(result, 5))
    await asyncio.sleep(0)
    result.set_result(None)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_cleaning_up_ends_before_whoever_cleans_up_is_cancelled() -> None:
    done: list[str] = []

    async def clean_up() -> None:
        await asyncio.sleep(0.02)
        done.append("cleaned up")

    waiting = asyncio.ensure_future(to_the_end(clean_up()))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == ["cleaned up"]
