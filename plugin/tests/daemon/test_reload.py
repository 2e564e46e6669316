"""Another configuration while the plugin runs: what changed is touched, what is bad is refused."""

import asyncio
import contextlib
import functools
import gc
import threading
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kubelet_stand_in import StandInKubelet
from node_device_plugin.daemon import reload
from node_device_plugin.daemon.reload import Outcome, Reloader
from node_device_plugin.daemon.resource_manager import ServedResource
from node_device_plugin.declaration import DeclarationError, configuration_file, parse_configuration
from node_device_plugin.declaration.configuration_file import LoadedConfiguration, Source, load
from node_device_plugin.devices.events.watch import Watch
from node_device_plugin.kubelet.device_plugin.frontend import DevicePluginFrontend
from node_device_plugin.support.task_group import TaskGroup
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

from ..serving import managed

# Directories of the test's own, because the plugin writes into them.
PLACES = """
kubelet_device_plugin_dir: %(here)s/dp
kubelet_root_dir: %(here)s
dynamic_cdi_dir: %(here)s/cdi
cdi_spec_dirs: []
"""
BEFORE = """
resources:
  - {name: example.com/kept, devices: [{id: k0, nodes: [{path: /dev/null}]}]}
  - {name: example.com/changed, devices: [{id: c0}], env: {"CHANGED_{index}": x}}
  - {name: example.com/options, devices: [{id: o0}], env: {OPTIONS: x}}
  - {name: example.com/removed, devices: [{id: r0}], env: {MOVED: x}}
"""
# A device moves to another resource.
AFTER = """
resources:
  - {name: example.com/added, devices: [{id: r0}], env: {MOVED: x}}
  - {name: example.com/changed, devices: [{id: c0}, {id: c1}], env: {"CHANGED_{index}": x}}
  - {name: example.com/options, devices: [{id: o0}], env: {OPTIONS: x}, preference: packed}
  - {name: example.com/kept, devices: [{id: k0, nodes: [{path: /dev/null}]}]}
"""


class Running:
    """What daemon.main puts together, without signals."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "config.yaml"
        self.directory = folder / "dp"
        self.write(BEFORE)
        self.tasks = TaskGroup()
        self.watch = Watch()
        self.resources = managed(self.tasks, self.watch)
        self.changes: dict[str, str] = {}
        self.reloader = Reloader(Source(str(self.file)), load(str(self.file)), self.apply)

    def write(self, text: str) -> None:
        self.file.write_text(PLACES % {"here": self.file.parent} + text)

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


def served(running: Running) -> dict[str, ServedResource]:
    return {each.name: each for each in running.resources.served()}


async def test_only_what_changed_is_touched(running: Running) -> None:
    async with StandInKubelet(str(running.directory)) as kubelet:
        for name in ("kept", "changed", "options", "removed"):
            await kubelet.registered("example.com/" + name)
        connections = {
            name: kubelet.manager.endpoints["example.com/" + name] for name in ("kept", "changed", "options")
        }
        running.write(AFTER)
        assert await running.reloader.reload() == Outcome("applied")
        assert running.changes[running.reloader.loaded.sha256] == (
            "added example.com/added; changed example.com/changed; registered again example.com/options; "
            "removed example.com/removed; kept example.com/kept"
        )
        assert await kubelet.registered("example.com/added") == {"r0": "Healthy"}
        await kubelet.until(lambda: kubelet.devices("example.com/changed") == {"c0": "Healthy", "c1": "Healthy"})
        with contextlib.suppress(AssertionError):
            await kubelet.disconnected("example.com/removed", timeout=2)
        # The kubelet may have listed the device as free when the plugin asked. The plugin asks again every minute.
        await running.resources.ask_for_holders()
        await kubelet.disconnected("example.com/removed")
        names = ["example.com/" + name for name in ("added", "changed", "options", "kept")]
        assert [each.name for each in running.resources.served()] == names
        # The kubelet still has the connection that it made at the first registration, with the stream on it open.
        for name in ("kept", "changed"):
            assert kubelet.manager.endpoints["example.com/" + name] is connections[name]
            assert connections[name].stopped_at is None
            assert served(running)["example.com/" + name].status.is_registered
        assert await kubelet.registered("example.com/options") == {"o0": "Healthy"}
        assert kubelet.manager.endpoints["example.com/options"] is not connections["options"]


def has_devices(kubelet: StandInKubelet, wanted: dict[str, str]) -> bool:
    return kubelet.devices("example.com/dev") == wanted


async def test_no_pod_meets_a_resource_without_devices_because_of_a_reload(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever changes that needs no registration: the kubelet goes from the old list to the new one in one step."""
    resource = "resources: [{name: example.com/dev, devices: [{id: a, nodes: [{path: /dev/null}]}%s]%s}]"
    lists: list[dict[str, str]] = []
    async with StandInKubelet(str(running.directory)) as kubelet:
        running.write(resource % ("", ""))
        await running.reloader.reload()
        assert await kubelet.registered("example.com/dev") == {"a": "Healthy"}
        update = kubelet.manager.state.update

        def heard(name: str, devices: Any) -> None:
            lists.append({device.ID: device.health for device in devices})
            update(name, devices)

        monkeypatch.setattr(kubelet.manager.state, "update", heard)
        (frontend,) = running.resources._frontends.values()
        assert isinstance(frontend, DevicePluginFrontend)
        plugin = frontend._offers["example.com/dev"].connection.service
        plugin._coalesce = 0
        for more, keys in (
            (", {id: b, nodes: [{path: /dev/zero}]}", ""),
            (", {id: b, nodes: [{path: /dev/zero}]}", ", env: {'X_{index}': '{id}'}"),
            ("", ", health: {command: [/bin/sleep, '60'], timeout: 70}"),
            ("", ", container_limit: 3, cdi_kind: example.com/kind, annotations: {'a.example/b{index}': '{id}'}"),
            ("", ", replicas: 2"),
        ):
            running.write("recovery_delay: 5\n" + resource % (more, keys))
            assert await running.reloader.reload() == Outcome("applied")
            assert running.changes[running.reloader.loaded.sha256] == "changed example.com/dev"
            wanted = {entry.kubelet_id: "Healthy" for entry in plugin.offered.listed()}
            await kubelet.until(functools.partial(has_devices, kubelet, wanted))
        assert lists == [{"a": "Healthy", "b": "Healthy"}, {"a": "Healthy"}, {"a::0": "Healthy", "a::1": "Healthy"}]
        # The kubelet calls PreStartContainer only if a registration says so.
        running.write(resource % ("", ", injection: device_nodes, container_edits: {env: [A=b]}"))
        assert await running.reloader.reload() == Outcome("applied")
        assert running.changes[running.reloader.loaded.sha256] == "registered again example.com/dev"
        await kubelet.until(functools.partial(has_devices, kubelet, {"a": "Healthy"}))
        plugin = frontend._offers["example.com/dev"].connection.service
        answer = await plugin.Allocate(api.AllocateRequest(container_requests=[{"devices_ids": ["a"]}]), None)
        assert dict(answer.container_responses[0].envs) == {"A": "b"}


async def test_what_was_known_of_a_device_that_stays_is_known_after_a_reload(running: Running) -> None:
    """One that was here and went stays listed, by discovery or not; one that is declared otherwise is judged again."""
    text = """
resources:
  - name: example.com/dev
    discover: {{paths: [{0}/found*]}}
    env: {{"X_{{index}}": "{1}"}}
    devices: [{{id: may, required: false, nodes: [{{path: {0}/{2}}}]}}]
"""
    folder = running.file.parent
    for name, node in (("found", "/dev/zero"), ("may", "/dev/null")):
        (folder / name).symlink_to(node)

    async def listed(env: str, node: str) -> dict[str, bool]:
        running.write(text.format(folder, env, node))
        assert (await running.reloader.reload()).result == "applied"
        table = served(running)["example.com/dev"].table
        return {device.id.rpartition("-")[2]: reason is None for device, reason in table.shown()}

    assert await listed("a", "may") == {"may": True, "found": True}
    for name in ("found", "may"):
        (folder / name).unlink()
    assert await listed("b", "may") == {"may": False, "found": False}
    assert await listed("b", "other") == {"found": False}


async def test_the_same_content_touches_nothing(running: Running) -> None:
    tables = running.resources.tables
    assert await running.reloader.reload() == Outcome("unchanged")
    running.write(BEFORE + "# other bytes, the same meaning\n")
    assert await running.reloader.reload() == Outcome("applied")
    assert running.resources.tables == tables
    change = running.changes[running.reloader.loaded.sha256]
    assert change == " ".join(["kept", *(table.resource.name for table in tables)])
    assert await running.resources.apply(running.reloader.loaded.configuration._replace(resources=())) == (
        " ".join(["removed", *(table.resource.name for table in tables)])
    )
    assert await running.resources.apply(running.reloader.loaded.configuration._replace(resources=())) == "no resources"


@pytest.mark.parametrize("text", ["resources: [{name: x}]", "resources: [", "resources: 5", ""])
async def test_a_bad_file_is_refused_and_the_old_configuration_stays(
    running: Running, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    before = running.resources.tables, running.reloader.loaded
    running.file.write_text(text)
    outcome = await running.reloader.reload()
    assert outcome.result == "refused"
    assert outcome.problems
    refusals = [record for record in caplog.records if record.levelname == "ERROR"]
    assert [record.values["error"] for record in refusals] == [str(problem) for problem in outcome.problems]
    assert (running.resources.tables, running.reloader.loaded) == before
    running.file.unlink()
    outcome = await running.reloader.reload()
    assert [problem.message for problem in outcome.problems] == ["No such file or directory"]
    assert (running.resources.tables, running.reloader.loaded) == before
    running.write(AFTER)
    assert (await running.reloader.reload()).result == "applied"


async def test_the_default_counts_while_the_node_has_no_file(running: Running) -> None:
    own, default = running.file, running.file.with_name("default")
    default.write_text(PLACES % {"here": own.parent} + AFTER)
    reloader = Reloader(Source(str(own), str(default)), running.reloader.loaded, running.apply)
    running.tasks.start(reloader.run())
    assert (await reloader.reload()).result == "unchanged"
    own.rename(own.with_name("away"))
    assert ((await reloader.reload()).result, reloader.loaded) == ("applied", load(str(default)))
    own.with_name("away").rename(own)
    assert ((await reloader.reload()).result, reloader.loaded) == ("applied", load(str(own)))


def test_the_file_of_a_node_counts_even_if_it_leads_nowhere(tmp_path: Path) -> None:
    """Otherwise a broken link would give the node the devices of another kind of node."""
    own, default = tmp_path / "own", tmp_path / "default"
    assert Source(str(own)).chosen == str(own)
    assert Source(str(own), str(default)).chosen == str(default)
    own.symlink_to("nowhere")
    assert Source(str(own), str(default)).chosen == str(own)


def test_a_node_without_a_file_and_without_a_default_tells_the_ways_out(tmp_path: Path) -> None:
    """Somebody labelled the node by hand for a DaemonSet whose ConfigMap has neither key."""
    source = Source(str(tmp_path / "worker1"), str(tmp_path / "_default"))
    with pytest.raises(DeclarationError) as refused:
        source.load()
    (problem,) = refused.value.problems
    assert problem.where == str(tmp_path / "worker1")
    assert problem.message == (
        f"is missing, and so is the default {tmp_path}/_default: add the key worker1 or _default to the ConfigMap, or "
        "take the label that selects the pod's node from it"
    )
    (tmp_path / "_default").write_text("resources: 1\n")
    with pytest.raises(DeclarationError, match=r"\Aresources: "):
        source.load()


async def test_a_file_that_hangs_is_refused(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(reload, "_LIMIT", 0.2)
    monkeypatch.setattr(configuration_file, "load", lambda path: release.wait(60))
    reloader = Reloader(Source(str(running.file)), running.reloader.loaded, running.apply)
    running.tasks.start(reloader.run())
    outcome = await asyncio.wait_for(reloader.reload(), 30)
    release.set()
    says = ["%s: reading the file did not answer in 0.2 s" % running.file]
    assert (outcome.result, [str(problem) for problem in outcome.problems]) == ("refused", says)


async def test_what_is_withdrawn_during_a_reload_stays_so_until_the_next_one(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    applied, starts, goes_on = running.reloader._apply, asyncio.Event(), asyncio.Event()

    async def slow(loaded: LoadedConfiguration) -> None:
        if loaded.configuration.resources:
            starts.set()
            await goes_on.wait()
        await applied(loaded)

    monkeypatch.setattr(running.reloader, "_apply", slow)
    running.write(AFTER)
    reload_ = asyncio.create_task(running.reloader.reload())
    await asyncio.wait_for(starts.wait(), 10)
    withdraw = asyncio.create_task(running.reloader.withdraw())
    await asyncio.sleep(0.05)
    goes_on.set()
    assert await reload_ == await withdraw == Outcome("applied")
    assert running.resources.served() == []
    # The same file counts as a change now.
    assert await running.reloader.reload() == Outcome("applied")
    assert len(running.resources.served()) == 4


async def test_a_thousand_reloads_leave_nothing_behind(running: Running) -> None:
    """Of a resource whose list stays the same: the stream of before goes on with the newest table."""
    async with StandInKubelet(str(running.directory)) as kubelet:
        await kubelet.registered("example.com/changed")
        first = weakref.ref(served(running)["example.com/changed"].table)
        resource = {"name": "example.com/changed", "devices": [{"id": "c0"}]}
        for number in range(1100):
            await running.resources.apply(
                parse_configuration(
                    {
                        **yaml.safe_load(PLACES % {"here": running.file.parent}),
                        "resources": [{**resource, "env": {"N": str(number)}}],
                    }
                )
            )
        gc.collect()
        assert first() is None
        await kubelet.restart()
        await kubelet.registered("example.com/changed")
        await kubelet.until(lambda: kubelet.devices("example.com/changed") == {"c0": "Healthy"})
        pod = await kubelet.allocate_pod("pod", {"main": {"example.com/changed": 1}})
        assert pod.uid


async def test_who_asks_while_it_reloads_is_answered_by_another_reload(running: Running) -> None:
    running.write(AFTER)
    for _ in range(3):
        running.reloader.ask()
    while "example.com/added" not in served(running):
        await asyncio.sleep(0.01)
    running.write(BEFORE)
    running.reloader.ask()
    while "example.com/removed" not in served(running):
        await asyncio.sleep(0.01)


async def test_a_task_that_ends_by_itself_is_a_defect() -> None:
    async def ends() -> None:
        raise ValueError("here")

    tasks = TaskGroup()
    tasks.start(asyncio.sleep(60))
    tasks.start(ends())
    with pytest.raises(ValueError, match="here"):
        await asyncio.wait_for(tasks.defect, 5)
    await tasks.stop()


async def test_a_task_that_is_stopped_is_none() -> None:
    tasks = TaskGroup()
    first, second = tasks.start(asyncio.sleep(60)), tasks.start(asyncio.sleep(60))
    await tasks.stop(first)
    assert (first.cancelled(), second.done()) == (True, False)
    await tasks.stop()
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(asyncio.shield(tasks.defect), 0.01)
    assert not tasks.defect.done()
