"""Another configuration while the plugin runs: what changed is touched, what is bad is refused."""

import asyncio
import contextlib
from pathlib import Path
from typing import AsyncIterator, Dict

import pytest

from node_device_plugin.configuration import LoadedConfiguration, load
from node_device_plugin.inventory import Inventory
from node_device_plugin.reload import Outcome, Reloader
from node_device_plugin.served import Change, ServedResources
from node_device_plugin.supervision import Tasks
from node_device_plugin.testing import StandInKubelet
from node_device_plugin.watch import Watch

BEFORE = """
kubelet_device_plugin_dir: %s
cdi_spec_dirs: []
resources:
  - {name: example.com/kept, devices: [{id: k0, nodes: [{path: /dev/null}]}]}
  - {name: example.com/changed, devices: [{id: c0}]}
  - {name: example.com/removed, devices: [{id: r0}]}
"""
# A device moves to another resource.
AFTER = """
kubelet_device_plugin_dir: %s
cdi_spec_dirs: []
resources:
  - {name: example.com/added, devices: [{id: r0}]}
  - {name: example.com/changed, devices: [{id: c0}, {id: c1}]}
  - {name: example.com/kept, devices: [{id: k0, nodes: [{path: /dev/null}]}]}
"""


class Running:
    """What plugin.run puts together, without signals."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "config.yaml"
        self.directory = folder / "dp"
        self.write(BEFORE)
        self.tasks = Tasks()
        self.watch = Watch()
        self.resources = ServedResources(self.tasks, Inventory(self.watch))
        self.changes: Dict[str, Change] = {}
        self.reloader = Reloader(str(self.file), load(str(self.file)), self.apply)

    def write(self, text: str) -> None:
        self.file.write_text(text % self.directory if "%s" in text else text)

    async def apply(self, loaded: LoadedConfiguration) -> None:
        self.changes[loaded.sha256] = await self.resources.apply(loaded.configuration)


@pytest.fixture
async def running(short_path: Path) -> AsyncIterator[Running]:
    process = Running(short_path)
    await process.apply(process.reloader.loaded)
    process.tasks.start(process.reloader.run())
    yield process
    await process.tasks.stop()
    process.watch.close()


async def test_only_what_changed_is_touched(running: Running) -> None:
    async with StandInKubelet(str(running.directory)) as kubelet:
        for name in ("kept", "changed", "removed"):
            await kubelet.registered("example.com/" + name)
        connections = {name: kubelet.manager.endpoints["example.com/" + name] for name in ("kept", "changed")}
        running.write(AFTER)
        assert await running.reloader.reload() == Outcome("applied")
        assert running.changes[running.reloader.loaded.sha256] == Change(
            added=("example.com/added",),
            changed=("example.com/changed",),
            removed=("example.com/removed",),
            kept=("example.com/kept",),
        )
        assert await kubelet.registered("example.com/added") == {"r0": "Healthy"}
        await kubelet.until(lambda: kubelet.devices("example.com/changed") == {"c0": "Healthy", "c1": "Healthy"})
        await kubelet.disconnected("example.com/removed")
        assert list(running.resources.by_name) == ["example.com/added", "example.com/changed", "example.com/kept"]
        # The kubelet still has the connection that it made at the first registration, with the stream on it open.
        assert kubelet.manager.endpoints["example.com/kept"] is connections["kept"]
        assert connections["kept"].stopped_at is None
        assert running.resources.by_name["example.com/kept"].registration.is_registered
        assert kubelet.manager.endpoints["example.com/changed"] is not connections["changed"]


async def test_the_same_content_touches_nothing(running: Running) -> None:
    served = running.resources.by_name
    assert await running.reloader.reload() == Outcome("unchanged")
    running.write(BEFORE + "# other bytes, the same meaning\n")
    assert await running.reloader.reload() == Outcome("applied")
    assert running.resources.by_name == served
    change = running.changes[running.reloader.loaded.sha256]
    assert change == Change(added=(), changed=(), removed=(), kept=tuple(served))


@pytest.mark.parametrize("text", ["resources: [{name: x}]", "resources: [", "resources: 5", ""])
async def test_a_bad_file_is_refused_and_the_old_configuration_stays(
    running: Running, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = dict(running.resources.by_name), running.reloader.loaded
    running.write(text)
    outcome = await running.reloader.reload()
    assert outcome.result == "refused"
    assert outcome.problems
    assert all(str(problem) in caplog.text for problem in outcome.problems)
    assert (running.resources.by_name, running.reloader.loaded) == before
    running.file.unlink()
    outcome = await running.reloader.reload()
    assert [problem.message for problem in outcome.problems] == ["No such file or directory"]
    assert (running.resources.by_name, running.reloader.loaded) == before
    running.write(AFTER)
    assert (await running.reloader.reload()).result == "applied"


async def test_who_asks_while_it_reloads_is_answered_by_another_reload(running: Running) -> None:
    running.write(AFTER)
    for _ in range(3):
        running.reloader.ask()
    while "example.com/added" not in running.resources.by_name:
        await asyncio.sleep(0.01)
    running.write(BEFORE)
    running.reloader.ask()
    while "example.com/removed" not in running.resources.by_name:
        await asyncio.sleep(0.01)


async def test_a_task_that_ends_by_itself_is_a_defect() -> None:
    async def ends() -> None:
        raise ValueError("here")

    tasks = Tasks()
    tasks.start(asyncio.sleep(60))
    tasks.start(ends())
    with pytest.raises(ValueError, match="here"):
        await asyncio.wait_for(tasks.defect, 5)
    await tasks.stop()


async def test_a_task_that_is_stopped_is_none() -> None:
    tasks = Tasks()
    first, second = tasks.start(asyncio.sleep(60)), tasks.start(asyncio.sleep(60))
    await tasks.stop(first)
    assert (first.cancelled(), second.done()) == (True, False)
    await tasks.stop()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.shield(tasks.defect), 0.01)
    assert not tasks.defect.done()
