"""A failed write is repeated after a growing pause, and logged once a change."""

import logging

import pytest

from node_device_plugin.devices import failed_writes
from node_device_plugin.devices.failed_writes import FailedWrites
from node_device_plugin.telemetry.logs import Log


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(failed_writes, "time", made)
    return made


async def test_the_pause_grows_while_the_same_write_fails(clock: Clock) -> None:
    failed, full = FailedWrites(Log("test"), lambda: None), OSError(28, "full")
    for pause in (1, 2, 4, 8, 15, 15):
        failed.failed("a", "text", full)
        clock.now += pause - 0.5
        assert failed.waiting("a", "text") is full
        # Another write is tried at once, and so is another name's.
        assert failed.waiting("a", "other text") is failed.waiting("b", "text") is None
        clock.now += 0.5
        assert failed.waiting("a", "text") is None
    failed.failed("a", "other text", full)
    clock.now += 1
    assert failed.waiting("a", "other text") is None


async def test_a_write_that_went_well_or_is_not_wanted_is_forgotten(clock: Clock) -> None:
    failed, full = FailedWrites(Log("test"), lambda: None), OSError(28, "full")
    for name in ("a", "b"):
        failed.failed(name, "text", full)
    failed.went_well("a")
    failed.keep_only(())
    assert failed.waiting("a", "text") is failed.waiting("b", "text") is None


async def test_a_failure_is_logged_once_a_change(caplog: pytest.LogCaptureFixture) -> None:
    failed = FailedWrites(Log("test"), lambda: None)
    for why in ("full", "full", "read-only", "read-only", "full"):
        failed.failed("a", "text", OSError(why), error=why)
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert lines == ["cannot write a CDI spec error=%s" % why for why in ("full", "read-only", "full")]
