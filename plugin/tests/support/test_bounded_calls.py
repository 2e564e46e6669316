"""A call that hangs holds up no other one, and is not begun a second time."""

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from typing import Callable, Union

import pytest

from node_device_plugin.support import bounded_calls, threads
from node_device_plugin.support.bounded_calls import BoundedCalls, Call, Key, NoAnswer, in_thread

LATE = "did not answer in 2 s"


class Hanging:
    """Calls that hang until they are released. begun: the names of all that were begun."""

    def __init__(self) -> None:
        self.released = threading.Event()
        self.begun: list[str] = []

    def call(self, name: str) -> Callable[[], str]:
        def hang() -> str:
            self.begun.append(name)
            self.released.wait(20)
            return name

        return hang


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.released.set()


def fails() -> str:
    raise ValueError("x")


def shown(answer: Union[str, Exception]) -> str:
    return str(answer)


def number_of_threads() -> int:
    return len(os.listdir("/proc/self/task"))


async def test_each_call_has_its_own_answer(hanging: Hanging, monkeypatch: pytest.MonkeyPatch) -> None:
    # No thread waits for other work.
    monkeypatch.setattr(threads, "_MOST_IDLE", 0)
    monkeypatch.setattr(threads, "_idle", [])
    calls = BoundedCalls(limit=2)
    due: list[Call[str]] = [
        (Key("a", "1"), lambda: "one"),
        (Key("a", "2"), hanging.call("a2")),
        (Key("a", "3"), fails),
        (Key("b", "1"), lambda: "two"),
    ]
    before = number_of_threads()
    for _ in range(3):
        answers = await calls.run(due)
        assert {key: shown(answer) for key, answer in answers.items()} == {
            ("a", "1"): "one",
            ("a", "2"): LATE,
            ("a", "3"): "x",
            ("b", "1"): "two",
        }
    assert hanging.begun == ["a2"]
    # A thread's last call returns a moment before the thread is gone.
    for _ in range(500):
        if number_of_threads() <= before + 1:
            break
        await asyncio.sleep(0.02)
    else:
        raise AssertionError("each look at a call that hangs leaves a thread behind")
    hanging.released.set()
    for _ in range(200):
        if (await calls.run(due))["a", "2"] == "a2":
            return
        await asyncio.sleep(0.02)
    raise AssertionError("what is back is still called hanging")


async def test_what_comes_back_in_time_counts_and_its_successors_are_begun_once() -> None:
    begun: list[int] = []

    def slow(number: int) -> Callable[[], int]:
        def call() -> int:
            begun.append(number)
            time.sleep(0.02)
            return number

        return call

    numbers = range(10)
    answers = await BoundedCalls(limit=20, patience=0.001, most=2).run([(Key("a", str(n)), slow(n)) for n in numbers])
    assert answers == {("a", str(number)): number for number in numbers}
    assert sorted(begun) == list(numbers)


async def test_a_thread_that_begins_late_runs_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine, each thread may begin later than a call is slow."""
    started: list[threading.Timer] = []

    def start_late(work: Callable[[], None]) -> None:
        started.append(threading.Timer(0.1, work))
        started[-1].start()

    monkeypatch.setattr(bounded_calls.threads, "start", start_late)
    calls = BoundedCalls(limit=20, patience=0.01)
    assert await asyncio.wait_for(calls.call(Key("a", "1"), lambda: 1), 10) == 1
    assert len(started) == 1
    # But no longer than the limit.
    with pytest.raises(NoAnswer, match=r"did not answer in 0\.05 s"):
        await BoundedCalls(limit=0.05).call(Key("a", "2"), lambda: 2)


async def test_while_a_call_has_time_the_next_one_waits_for_its_thread(hanging: Hanging) -> None:
    def in_which(call: Callable[[], str]) -> Callable[[], int]:
        def answer() -> int:
            call()
            return threading.get_ident()

        return answer

    calls = [(Key("a", name), in_which(hanging.call(name))) for name in ("first", "second")]
    running = asyncio.create_task(BoundedCalls(limit=20, patience=20).run(calls))
    while not hanging.begun:
        await asyncio.sleep(0.01)
    hanging.released.set()
    answers = await running
    assert answers["a", "first"] == answers["a", "second"]


async def test_a_group_in_which_many_hang_takes_no_thread_from_others(hanging: Hanging) -> None:
    calls = BoundedCalls(limit=2, most=2)
    due: list[Call[str]] = [(Key("a", str(number)), hanging.call(str(number))) for number in range(4)]
    answers = await calls.run([*due, (Key("b", "1"), lambda: "one")])
    said = "was not started, because 2 other calls hang"
    assert [shown(answer) for _, answer in sorted(answers.items())] == [LATE, LATE, said, said, "one"]
    assert hanging.begun == ["0", "1"]


async def test_it_is_said_how_many_of_those_hang_that_are_in_the_way(hanging: Hanging) -> None:
    """Those of the call's own group, or of all groups."""
    calls = BoundedCalls(limit=0.2, most=2, most_at_all=3)
    due = [(Key(group, str(number)), hanging.call("x")) for group, number in (("a", 0), ("b", 0), ("a", 1))]
    while len(hanging.begun) < 3:
        # A thread that was slow to start has begun nothing.
        await calls.run(due)
    for group, number in (("a", 2), ("b", 3), ("c", 3)):
        with pytest.raises(NoAnswer, match="was not started, because %d other calls hang" % number):
            await calls.call(Key(group, "new"), hanging.call("x"))
    assert len(hanging.begun) == 3


async def test_no_more_than_some_hang_in_all_groups(hanging: Hanging) -> None:
    calls = BoundedCalls(limit=2, most_at_all=3)
    threads = number_of_threads()
    answers = await calls.run([(Key(str(number), "x"), hanging.call(str(number))) for number in range(9)])
    assert [shown(answer) for answer in answers.values()].count("was not started, because 3 other calls hang") == 6
    assert hanging.begun == ["0", "1", "2"]
    assert number_of_threads() <= threads + 3


async def test_who_comes_second_waits_for_the_first_and_has_an_answer_of_its_own(hanging: Hanging) -> None:
    calls, key = BoundedCalls(limit=20, patience=0.01), Key("a", "1")
    first = asyncio.create_task(calls.call(key, hanging.call("first")))
    await begun(hanging, "first")
    second = asyncio.create_task(calls.call(key, hanging.call("second")))
    await asyncio.sleep(0.1)
    assert hanging.begun == ["first"]
    assert not second.done()
    hanging.released.set()
    assert (await first, await second) == ("first", "second")


async def test_what_nobody_waits_for_any_longer_is_not_begun_again_while_it_hangs(hanging: Hanging) -> None:
    calls, key = BoundedCalls(limit=2, patience=1), Key("a", "1")
    given_up = asyncio.create_task(calls.call(key, hanging.call("first")))
    await begun(hanging, "first")
    given_up.cancel()
    with pytest.raises(NoAnswer, match="did not answer in 2 s"):
        await calls.call(key, hanging.call("second"))
    assert hanging.begun == ["first"]


async def begun(hanging: Hanging, *names: str) -> None:
    while hanging.begun != [*names]:
        await asyncio.sleep(0.01)


async def test_one_call_returns_or_raises(hanging: Hanging) -> None:
    calls = BoundedCalls()
    assert await calls.call(Key("a", "1"), lambda: 1) == 1
    with pytest.raises(ValueError, match="x"):
        await calls.call(Key("a", "1"), fails)
    with pytest.raises(NoAnswer, match=r"did not answer in 0\.1 s"):
        await BoundedCalls(limit=0.1).call(Key("a", "1"), hanging.call("a1"))


async def test_where_there_is_no_thread_left_it_is_said_or_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = 0

    def start(work: Callable[[], None]) -> None:
        nonlocal refusals
        refusals += 1
        if refusals <= 3:
            raise RuntimeError("can't start new thread")
        threading.Thread(target=work, daemon=True).start()

    monkeypatch.setattr(bounded_calls.threads, "start", start)
    with pytest.raises(NoAnswer, match="was not started: can't start new thread"):
        await BoundedCalls().call(Key("a", "1"), lambda: 1)
    assert await in_thread(lambda: 1) == 1
    assert refusals == 4


def test_a_thread_that_hangs_holds_up_no_end(hanging: Hanging) -> None:
    async def ends() -> None:
        waiting = asyncio.create_task(in_thread(hanging.call("a")))
        await begun(hanging, "a")
        waiting.cancel()

    began = time.monotonic()
    asyncio.run(ends())
    # The call itself waits for 20 s.
    assert time.monotonic() - began < 15


async def test_a_function_is_asked_by_its_name(hanging: Hanging) -> None:
    calls = BoundedCalls(limit=0.2)
    assert await calls.ask(str.upper, "a") == "A"
    with pytest.raises(ValueError, match="invalid literal"):
        await calls.ask(int, "a")
    hang = hanging.call("first")
    with pytest.raises(NoAnswer):
        await calls.ask(hang)
    # The call that hangs is not begun a second time.
    with pytest.raises(NoAnswer):
        await calls.ask(hang)
    assert hanging.begun == ["first"]
