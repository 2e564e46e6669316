"""A slow discovery finishes in the background: the reason shows until then, and then its devices are there."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from node_device_plugin.cdi.links import Links
from node_device_plugin.declaration import parse_resources
from node_device_plugin.devices.discovery import Discoverer
from node_device_plugin.devices.discovery.paths import Paths
from node_device_plugin.support.bounded_calls import BoundedCalls

from .conftest import Machine

MANY, OTHER = "example.com/many", "example.com/other"
# On a busy machine, a quick search takes some tenths of a second.
LIMIT = 1.0
WHY = {MANY: f"discovery by paths did not answer in {LIMIT:g} s"}


class Slow:
    """The search of the first resource takes until it is released."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.released, self.begun = threading.Event(), 0
        find = Paths.find

        def slow(method: Paths, discovery: Any, inside: Any) -> Iterator[Any]:
            if "/dev/many*" in discovery.paths:
                self.begun += 1
                self.released.wait(30)
            return find(method, discovery, inside)

        monkeypatch.setattr(Paths, "find", slow)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    made = Slow(monkeypatch)
    yield made
    made.released.set()


class Scans:
    def __init__(self, machine: Machine) -> None:
        self.news = asyncio.Event()
        many = {"name": MANY, "discover": {"paths": ["/dev/many*"]}}
        self.resources = parse_resources([many, {"name": OTHER, "discover": {"paths": ["/dev/other*"]}}])
        self.discoverer = Discoverer(Links(BoundedCalls(limit=LIMIT)), str(machine.path), on_news=self.news.set)

    async def found(self) -> dict[str, list[str]]:
        answer = await self.discoverer.discover(self.resources, dict)
        return {name: [device.id for device in each.devices] for name, each in answer.items()}

    async def usually(self, slow: Slow) -> None:
        """Let a slow search end once, so that the next one is usual, and hold the next one."""
        await self.found()
        slow.released.set()
        await asyncio.wait_for(self.news.wait(), 30)
        slow.released.clear()
        self.news.clear()


async def test_the_reason_shows_until_a_slow_search_ends_and_then_its_devices(machine: Machine, slow: Slow) -> None:
    machine.file("/dev/many0")
    machine.file("/dev/other0")
    scans = Scans(machine)
    assert await scans.found() == {OTHER: ["other0"]}
    assert dict(scans.discoverer.late) == WHY
    # Each scan meets the same search.
    assert await scans.found() == {OTHER: ["other0"]}
    assert (slow.begun, dict(scans.discoverer.late)) == (1, WHY)
    slow.released.set()
    await asyncio.wait_for(scans.news.wait(), 30)
    assert await scans.found() == {MANY: ["many0"], OTHER: ["other0"]}
    assert dict(scans.discoverer.late) == {}


async def test_a_slow_search_counts_as_late_only_if_it_takes_longer_than_usual(
    machine: Machine, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.file("/dev/many0")
    scans = Scans(machine)
    await scans.usually(slow)
    machine.file("/dev/many1")
    monkeypatch.setattr("node_device_plugin.devices.discovery._PATIENCE", 1e6)
    assert (await scans.found(), dict(scans.discoverer.late)) == ({MANY: ["many0"], OTHER: []}, {})
    monkeypatch.setattr("node_device_plugin.devices.discovery._PATIENCE", 0.0)
    assert (await scans.found(), dict(scans.discoverer.late)) == ({MANY: ["many0"], OTHER: []}, WHY)
    slow.released.set()
    await asyncio.wait_for(scans.news.wait(), 30)
    assert (await scans.found(), dict(scans.discoverer.late)) == ({MANY: ["many0", "many1"], OTHER: []}, {})


async def test_a_slow_search_that_finds_the_same_asks_for_no_scan(machine: Machine, slow: Slow) -> None:
    """Otherwise the plugin would scan without an end."""
    machine.file("/dev/many0")
    scans = Scans(machine)
    slow.released.set()
    await scans.found()
    slow.released.clear()
    await scans.found()
    search = next(each for each in scans.discoverer._searches.values() if each.is_slow)
    before = search.seconds
    # Its devices stayed, so nobody waits.
    scans.discoverer.late = {}
    slow.released.set()
    while search.seconds == before:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not scans.news.is_set()


async def test_a_search_that_was_quick_before_is_late(
    machine: Machine, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node_device_plugin.devices.discovery._PATIENCE", 1e6)
    machine.file("/dev/many0")
    scans = Scans(machine)
    slow.released.set()
    await scans.found()
    slow.released.clear()
    assert (await scans.found(), dict(scans.discoverer.late)) == ({MANY: ["many0"], OTHER: []}, WHY)
    # The reason must go, although the devices are the same.
    slow.released.set()
    await asyncio.wait_for(scans.news.wait(), 30)
    await scans.found()
    assert dict(scans.discoverer.late) == {}


async def test_a_usual_slow_search_that_finds_another_device_asks_for_a_scan(
    machine: Machine, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node_device_plugin.devices.discovery._PATIENCE", 1e6)
    scans = Scans(machine)
    await scans.usually(slow)
    machine.file("/dev/many0")
    assert (await scans.found(), dict(scans.discoverer.late)) == ({MANY: [], OTHER: []}, {})
    slow.released.set()
    await asyncio.wait_for(scans.news.wait(), 30)
    assert (await scans.found())[MANY] == ["many0"]


async def test_a_scan_that_met_a_running_search_is_repeated(
    machine: Machine, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search may have looked before the event that asked for the scan."""
    monkeypatch.setattr("node_device_plugin.devices.discovery._PATIENCE", 1e6)
    scans = Scans(machine)
    await scans.usually(slow)
    assert [await scans.found() for _ in "12"] == [{MANY: [], OTHER: []}] * 2
    assert dict(scans.discoverer.late) == {}
    slow.released.set()
    await asyncio.wait_for(scans.news.wait(), 30)


async def test_a_search_of_a_former_declaration_asks_for_no_scan(machine: Machine, slow: Slow) -> None:
    scans = Scans(machine)
    await scans.found()
    search = next(each for each in scans.discoverer._searches.values() if each.is_slow)
    before = search.seconds
    scans.resources = scans.resources[1:]
    await scans.found()
    slow.released.set()
    while search.seconds == before:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not scans.news.is_set()


async def test_a_command_waits_for_a_busy_search(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.file("/dev/many0")
    scans = Scans(machine)
    find = Paths.find

    def busy(method: Paths, discovery: Any, inside: Any) -> Iterator[Any]:
        until = threading.Event()
        threading.Timer(5 * LIMIT, until.set).start()
        while not until.is_set():
            sum(range(1000))
        return find(method, discovery, inside)

    monkeypatch.setattr(Paths, "find", busy)
    discoverer = Discoverer(Links(BoundedCalls(limit=LIMIT, busy=60)), str(machine.path))
    answer = await discoverer.discover(scans.resources[:1], dict)
    assert [device.id for device in answer[MANY].devices] == ["many0"]
    assert dict(discoverer.late) == {}


async def test_a_slow_search_is_late_by_its_own_start_whichever_scan_meets_it(machine: Machine, slow: Slow) -> None:
    scans = Scans(machine)
    await scans.usually(slow)
    await scans.found()
    search = next(each for each in scans.discoverer._searches.values() if each.is_slow)
    search.started -= 1e6
    assert (await scans.found(), dict(scans.discoverer.late)) == ({MANY: [], OTHER: []}, WHY)
