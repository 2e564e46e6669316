"""Which CDI names a container cannot use while a spec of ours is not written."""

import logging
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.cdi import writer
from node_device_plugin.cdi.links import Links
from node_device_plugin.declaration import Resource, parse_resources
from node_device_plugin.devices import our_specs
from node_device_plugin.devices.given import SpecNames
from node_device_plugin.devices.our_specs import FailedWrite, OurSpecs, _lacking
from node_device_plugin.support.bounded_calls import NoAnswer

NAME = "example.com/dev"
LATE = NoAnswer("did not answer in 2 s")
WHY = "writing the CDI spec did not answer in 2 s"


def resource(path: str = "/dev/null", **more: Any) -> Resource:
    nodes = [{"id": "a", "nodes": [{"path": path}]}, {"id": "b", "nodes": [{"path": "/dev/zero"}]}]
    (made,) = parse_resources([{"name": NAME, "devices": nodes, **more}])
    return made._replace(cdi_by_plugin=True)


def written(before: Resource, *kept: str) -> writer.Written:
    return writer.Written(before, frozenset(kept), (0, 0, 0, 0))


def test_a_failed_write_says_what_it_lacks() -> None:
    error = writer.NotWritten("/cdi/x.json", OSError(28, "No space left on device"), frozenset([f"{NAME}=a"]))
    why = "cannot write the CDI spec /cdi/x.json: No space left on device"
    assert _lacking(error, written(resource()), resource(), Links()) == (why, {f"{NAME}=a"})


@pytest.mark.parametrize(
    ("before", "lacking"),
    [
        (None, {"a", "b"}),
        (written(resource()), set()),
        (written(resource("/dev/full")), {"a"}),
        # Edits of the resource are part of each device's spec.
        (written(resource(container_edits={"env": ["A=1"]})), {"a", "b"}),
        # A kept name has the edits of another device.
        (written(resource(), f"{NAME}=b"), {"b"}),
    ],
)
def test_a_write_that_hangs_lacks_what_has_changed(before: writer.Written, lacking: set[str]) -> None:
    names = {f"{NAME}={device_id}" for device_id in lacking}
    assert _lacking(LATE, before, resource(), Links()) == (WHY, names)


def test_another_error_is_raised() -> None:
    with pytest.raises(KeyError):
        _lacking(KeyError("x"), None, resource(), Links())


async def test_a_failed_write_waits_and_keeps_its_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = []

    def fail(declared: Resource, *_: object) -> None:
        attempts.append(declared.name)
        raise writer.NotWritten("/cdi/x.json", OSError(28, "full"), frozenset([f"{NAME}=a"]))

    monkeypatch.setattr(writer, "write", fail)
    specs = OurSpecs(Links(), lambda: None)
    noted, note = [], FailedWrite.note
    monkeypatch.setattr(FailedWrite, "note", lambda *args, **values: [noted.append(args), note(*args, **values)])
    for _again in range(2):
        unwritten = await specs.write([resource()], str(tmp_path), SpecNames())
        assert unwritten == {f"{NAME}=a": "cannot write the CDI spec /cdi/x.json: full"}
    # A longer pause follows a second attempt alone.
    assert (attempts, len(noted)) == ([NAME], 1)
    # Another spec is written at once.
    await specs.write([resource("/dev/full")], str(tmp_path), SpecNames())
    assert attempts == [NAME, NAME]


async def test_a_spec_that_hangs_counts_as_written_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    specs, seen, write = OurSpecs(Links(), lambda: None), [], writer.write

    def hang(*arguments: Any) -> Any:
        seen.append(arguments[3])
        if len(seen) == 2:
            raise LATE
        return write(*arguments)

    monkeypatch.setattr(writer, "write", hang)
    for lacking in ({}, {f"{NAME}=a": WHY}, {}):
        declared = resource("/dev/full" if lacking or len(seen) == 2 else "/dev/null")
        assert await specs.write([declared], str(tmp_path), SpecNames()) == lacking
    assert seen[0] is None
    assert seen[1] is not None
    assert seen[2] == seen[1]


async def test_only_removed_devices_with_another_path_are_omitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    omitted = []

    def omit(names: Any, _directory: str) -> list[str]:
        omitted.append(set(names))
        return []

    monkeypatch.setattr(writer, "omit", omit)
    specs = OurSpecs(Links(), lambda: None)
    await specs.write([resource()], str(tmp_path), SpecNames())
    await specs.write([resource()], str(tmp_path), SpecNames(blocked=frozenset([f"{NAME}=a"])))
    assert omitted == []
    await specs.write([resource()], str(tmp_path), SpecNames(blocked=frozenset([f"{NAME}=a", f"{NAME}=gone"])))
    assert omitted == [{f"{NAME}=gone"}]


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


async def test_the_pause_grows_while_the_same_write_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(our_specs, "time", clock)
    failed, full = FailedWrite(lambda: None), OSError(28, "full")
    assert failed.waiting("text") is None
    for pause in (1, 2, 4, 8, 15, 15):
        failed.note("text", full)
        clock.now += pause - 0.5
        assert failed.waiting("text") is full
        # Another write is tried at once.
        assert failed.waiting("other text") is None
        clock.now += 0.5
        assert failed.waiting("text") is None
    failed.note("other text", full)
    clock.now += 1
    assert failed.waiting("other text") is None


async def test_a_write_that_went_well_or_is_not_wanted_is_forgotten(tmp_path: Path) -> None:
    specs = OurSpecs(Links(), lambda: None)
    (tmp_path / "file").touch()
    fails, works = str(tmp_path / "file" / "cdi"), str(tmp_path / "cdi")
    for resources, directory in (([resource()], works), ([], fails)):
        await specs.write([resource()], fails, SpecNames())
        assert list(specs._failed) == [NAME]
        await specs.write(resources, directory, SpecNames())
        assert specs._failed == {}


async def test_a_failure_is_logged_once_a_change(caplog: pytest.LogCaptureFixture) -> None:
    failed = FailedWrite(lambda: None)
    for why in ("full", "full", "read-only", "read-only", "full"):
        failed.note("text", OSError(why), error=why)
    lines = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert lines == ["cannot write a CDI spec error=%s" % why for why in ("full", "read-only", "full")]
