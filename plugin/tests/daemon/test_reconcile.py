"""How soon what happened is looked at, and what must not hold that up."""

import asyncio
import errno
import functools
import json
from pathlib import Path
from typing import Any, Optional

import pytest

from node_device_plugin.cdi import writer
from node_device_plugin.daemon import reconcile, resource_manager
from node_device_plugin.declaration import parse_configuration
from node_device_plugin.devices.events.watch import Watch
from node_device_plugin.devices.flap_damping import UNSTEADY
from node_device_plugin.devices.table import DeviceTable
from node_device_plugin.kubelet import queries as kubelet_queries
from node_device_plugin.support.cancel_safe import done_within
from node_device_plugin.support.task_group import TaskGroup

from ..serving import managed


@pytest.mark.parametrize(("worked", "pause"), [(0.0, 0.02), (0.1, 0.5), (6.0, 1.0)])
def test_the_rest_after_a_look_grows_with_its_work_and_has_an_end(worked: float, pause: float) -> None:
    """A machine so busy that a look takes seconds must not rest for half a minute (an unplug was seen that late)."""
    assert reconcile.rest(worked) == pytest.approx(pause)


class Looks:
    """Stands for what is served. steady: whether a device waits to be trusted."""

    def __init__(self, steady: bool) -> None:
        self.are_steady = steady
        self.calls_for_a_look = True
        self.checks = 0
        self.prunes = 0

    async def is_news(self) -> bool:
        return self.calls_for_a_look

    async def check(self) -> None:
        self.checks += 1

    async def prune(self) -> None:
        self.prunes += 1


async def until(looks: Looks, attribute: str, count: int) -> None:
    while getattr(looks, attribute) < count:
        await asyncio.sleep(0.005)


async def test_news_are_looked_at_and_an_unsteady_device_without_news(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(sweep=60)
    steady: Any = Looks(True)
    task = asyncio.create_task(reconcile.reconcile(steady, watch))
    for count in (1, 2):
        watch.wake()
        assert await done_within(until(steady, "checks", count), 10)
    await asyncio.sleep(0.1)
    assert steady.checks == 2
    steady.calls_for_a_look = False
    watch.wake()
    await asyncio.sleep(0.1)
    assert steady.checks == 2
    steady.calls_for_a_look = True
    monkeypatch.setattr(reconcile, "_UNSTEADY_PERIOD", 0.01)
    steady.are_steady = False
    watch.wake()
    assert await done_within(until(steady, "checks", 5), 10)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    watch.close()


async def test_a_device_that_came_and_went_is_trusted_again_without_any_news(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    table_of = functools.partial(DeviceTable, clock=lambda: now[0])
    monkeypatch.setattr(resource_manager, "DeviceTable", table_of)
    monkeypatch.setattr(reconcile, "_UNSTEADY_PERIOD", 0.01)
    link = short_path / "null"
    link.symlink_to("/dev/null")
    configuration = parse_configuration(
        {
            "kubelet_device_plugin_dir": str(short_path / "dp"),
            "dynamic_cdi_dir": str(short_path / "cdi"),
            "cdi_spec_dirs": [],
            "recovery_delay": 10,
            "resources": [{"name": "example.com/dev", "devices": [{"id": "d0", "nodes": [{"path": str(link)}]}]}],
        }
    )
    # Nobody tells this one of anything.
    tasks, watch, quiet = TaskGroup(), Watch(), Watch(sweep=600)
    resources = managed(tasks, watch)
    try:
        await resources.apply(configuration)
        (table,) = resources.tables
        (device,) = table.resource.devices
        for _ in range(2):
            link.unlink()
            await resources.check()
            link.symlink_to("/dev/null")
            await resources.check()
        assert table.reason(device) == UNSTEADY
        tasks.start(reconcile.reconcile(resources, quiet))
        await asyncio.sleep(0.1)
        assert table.reason(device) == UNSTEADY
        change, now[0] = table.change, 10.0
        assert await done_within(change.wait(), 10)
        assert table.reason(device) is None
    finally:
        await tasks.stop()
        watch.close()
        quiet.close()


async def test_it_tidies_up_time_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "SWEEP", 0.01)
    looks: Any = Looks(True)
    assert not await done_within(reconcile.prune(looks), 0.2)
    assert looks.prunes > 1


async def test_a_kubelet_that_does_not_say_who_holds_what_holds_nothing_up(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a reload brings meanwhile is not pruned by an answer from before."""
    spec = short_path / "cdi" / "node-device-plugin_example.com_dev.json"
    asked, answer = asyncio.Event(), asyncio.Event()

    async def holders(*_: str) -> kubelet_queries.Holders:
        asked.set()
        await answer.wait()
        return kubelet_queries.Holders("kubelet")

    def configuration(pattern: Optional[str]) -> Any:
        discovering = {"name": "example.com/dev", "discover": {"paths": [pattern]}}
        return parse_configuration(
            {
                "kubelet_device_plugin_dir": str(short_path / "dp"),
                "dynamic_cdi_dir": str(spec.parent),
                "cdi_spec_dirs": [],
                "resources": [discovering] if pattern else [],
            }
        )

    def names() -> list[str]:
        return [device["name"] for device in json.loads(spec.read_text())["devices"]]

    monkeypatch.setattr(kubelet_queries, "holders", holders)
    tasks, watch = TaskGroup(), Watch()
    resources = managed(tasks, watch)
    try:
        await resources.apply(configuration("/dev/null"))
        await resources.apply(configuration("/dev/zero"))
        assert names() == ["zero", "null"]
        pruning = asyncio.create_task(resources.prune())
        await asyncio.wait_for(asked.wait(), 10)
        assert await done_within(resources.check(), 10)
        assert await done_within(resources.apply(configuration("/dev/full")), 10)
        answer.set()
        await pruning
        # A pod may have been given what was there when the kubelet was asked.
        assert names() == ["full", "zero"]
        await resources.prune()
        assert names() == ["full"]
    finally:
        await tasks.stop()
        watch.close()


async def test_an_answer_from_before_another_configuration_prunes_nothing(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet was asked what containers hold by the specs in another directory."""
    asked, answer = asyncio.Event(), asyncio.Event()

    async def holders(*_: str) -> kubelet_queries.Holders:
        asked.set()
        await answer.wait()
        return kubelet_queries.Holders("kubelet")

    def configuration(directory: str) -> Any:
        settings = {"kubelet_device_plugin_dir": str(short_path / "dp"), "cdi_spec_dirs": []}
        found = [{"name": "example.com/dev", "discover": {"paths": ["/dev/null"]}}]
        return parse_configuration({**settings, "dynamic_cdi_dir": str(short_path / directory), "resources": found})

    def path(directory: str) -> Path:
        return short_path / directory / "node-device-plugin_example.com_dev.json"

    def names(directory: str) -> list[str]:
        return [device["name"] for device in json.loads(path(directory).read_text())["devices"]]

    monkeypatch.setattr(kubelet_queries, "holders", holders)
    tasks, watch = TaskGroup(), Watch()
    resources = managed(tasks, watch)
    try:
        answer.set()
        await resources.apply(configuration("one"))
        (short_path / "two").mkdir()
        # With a device that no resource has.
        spec = json.loads(path("one").read_text())
        spec["devices"].append({**spec["devices"][0], "name": "left"})
        for directory in ("one", "two"):
            path(directory).write_text(json.dumps(spec))
        asked.clear()
        answer.clear()
        pruning = asyncio.create_task(resources.prune())
        await asyncio.wait_for(asked.wait(), 10)
        assert await done_within(resources.apply(configuration("two")), 10)
        answer.set()
        await pruning
        assert (names("one"), names("two")) == (["null", "left"], ["null", "left"])
        await resources.prune()
        assert (names("one"), names("two")) == (["null", "left"], ["null"])
    finally:
        await tasks.stop()
        watch.close()


async def test_orphans_stay_while_nobody_says_who_holds_them_and_without_orphans_nobody_is_asked(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def configuration(*resources: Any) -> Any:
        directories = {"kubelet_device_plugin_dir": str(short_path / "dp"), "dynamic_cdi_dir": str(short_path / "cdi")}
        return parse_configuration({**directories, "cdi_spec_dirs": [], "resources": list(resources)})

    tasks, watch = TaskGroup(), Watch()
    resources = managed(tasks, watch)
    try:
        await resources.apply(configuration({"name": "example.com/dev", "discover": {"paths": ["/dev/null"]}}))
        monkeypatch.setattr(kubelet_queries, "holders", None)
        await resources.prune()
        monkeypatch.undo()
        (short_path / "dp" / "kubelet_internal_checkpoint").write_text("{")
        await resources.apply(configuration())
        await resources.prune()
        assert list((short_path / "cdi").iterdir())
        assert f"cannot check the CDI specs for orphans; all specs stay directory={short_path / 'cdi'}" in caplog.text
    finally:
        await tasks.stop()
        watch.close()


async def test_orphans_that_cannot_be_removed_are_logged_once_and_removed_later(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_arguments: Any) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    directories = {"kubelet_device_plugin_dir": str(short_path / "dp"), "dynamic_cdi_dir": str(short_path / "cdi")}
    found = [{"name": "example.com/dev", "discover": {"paths": ["/dev/null"]}}]
    tasks, watch = TaskGroup(), Watch()
    resources = managed(tasks, watch)
    try:
        for declared in (found, []):
            await resources.apply(parse_configuration({**directories, "cdi_spec_dirs": [], "resources": declared}))
        with monkeypatch.context() as patch:
            patch.setattr(writer, "omit", full)
            await resources.prune()
            await resources.prune()
        assert caplog.text.count("cannot check the CDI specs for orphans; all specs stay") == 1
        assert list((short_path / "cdi").iterdir())
        await resources.prune()
        assert not list((short_path / "cdi").iterdir())
        with monkeypatch.context() as patch:
            patch.setattr(writer, "prune", full)
            await resources.prune()
        assert caplog.text.count("cannot check the CDI specs for orphans; all specs stay") == 2
    finally:
        await tasks.stop()
        watch.close()
