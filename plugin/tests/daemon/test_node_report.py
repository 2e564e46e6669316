"""The loop that tells the node object about the devices: how often it looks, and what it survives."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading

import pytest

from kubelet_stand_in import StandInKubelet
from node_device_plugin.cluster.api import Conflict, Unavailable
from node_device_plugin.cluster.node_readiness import CONDITION, Offered, Taint, ToldNode
from node_device_plugin.daemon import main as plugin
from node_device_plugin.daemon import node_report
from node_device_plugin.declaration.configuration_file import Source, load

from .test_main import CONFIG

TAINT = {"key": "a/b", "effect": "NoSchedule"}


class Api:
    """An API server with one node, whose answers may fail. shown: the look from which on the devices are shown."""

    def __init__(self, allocatable="0", shown=0):
        self.node = {
            "spec": {"taints": [TAINT]},
            "status": {"allocatable": {"x/y": allocatable}, "conditions": [{"type": "Ready", "status": "True"}]},
        }
        self.looks, self.parts, self.fails, self._shown = 0, [], None, shown

    def merge(self, place, content):
        assert content == {}
        self.looks += 1
        self.parts.append(place.part)
        if self.fails is not None:
            raise self.fails
        if self.looks == self._shown:
            assert self.node["spec"]["taints"] == [TAINT]
            self.node["status"]["allocatable"]["x/y"] = "2"
        return self.node

    def patch_node(self, _name, operations):
        assert operations[0] == {"op": "test", "path": "/spec/taints/0", "value": TAINT}
        self.node["spec"]["taints"] = []

    def patch_node_status(self, _name, operations):
        conditions = self.node["status"]["conditions"]
        place = operations[-1]["path"].rpartition("/")[2]
        conditions[len(conditions) if place == "-" else int(place) :] = [operations[-1]["value"]]


@pytest.fixture
def pauses(monkeypatch):
    """The pauses of the loop, which take no time. They have no random part here."""
    found, sleep = [], asyncio.sleep

    async def pause(seconds):
        found.append(seconds)
        await sleep(0)

    monkeypatch.setattr(node_report.asyncio, "sleep", pause)
    monkeypatch.setattr(node_report.random, "uniform", lambda _low, high: high)
    return found


def run(api, until, counts=None, leads=lambda: True, taint="a/b:NoSchedule", condition=True):
    """Run the loop until a condition holds."""

    async def work():
        told = ToldNode("worker", Taint.of(taint) if taint else None, condition)
        report = node_report.NodeReport(told, lambda: Offered(counts or {"x/y": 2}), leads, lambda: api)
        task = asyncio.create_task(report.run())
        deadline = asyncio.get_running_loop().time() + 20
        while not until():
            assert not task.done()
            assert asyncio.get_running_loop().time() < deadline
            await asyncio.wait([task], timeout=0.001)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(work())


def test_the_taint_goes_and_the_condition_comes_once_the_node_object_shows_the_devices(pauses):
    api = Api(shown=6)
    run(api, lambda: api.looks >= 15)
    assert api.node["spec"]["taints"] == []
    said = [(each["type"], each["status"]) for each in api.node["status"]["conditions"]]
    assert said == [("Ready", "True"), (CONDITION, "True")]
    assert set(api.parts) == {""}
    # While the devices are not allocatable, a look every four seconds; afterwards, at most one in a minute.
    assert pauses[:4] == [1.0, 2.0, 4.0, 4.0]
    first = pauses.index(1.0, 1)
    assert pauses[first : first + 8] == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


def test_without_a_taint_the_status_is_read(pauses):
    api = Api("2")
    run(api, lambda: api.looks >= 2, taint=None)
    assert set(api.parts) == {"status"}
    assert api.node["spec"]["taints"] == [TAINT]


def test_without_a_condition_none_is_set(pauses):
    api = Api("2")
    run(api, lambda: api.looks >= 3, condition=False)
    assert len(api.node["status"]["conditions"]) == 1
    assert api.node["spec"]["taints"] == []


def test_an_instance_beside_the_leader_does_not_look(pauses):
    api = Api("2")
    run(api, lambda: len(pauses) >= 5, leads=lambda: False)
    assert api.looks == 0
    assert set(pauses) == {1.0}


@pytest.mark.parametrize(
    ("error", "longest"), [(Unavailable("away"), 60.0), (Conflict("other"), 4.0), (KeyError("x"), 60.0)]
)
def test_a_failure_is_logged_once_and_tried_again(pauses, caplog, error, longest):
    api = Api("2")
    api.fails = error
    run(api, lambda: api.looks >= 9)
    assert [each.levelname for each in caplog.records if "cannot tell the node object" in each.message][:1] == [
        "WARNING"
    ]
    warnings = [each for each in caplog.records if each.levelname == "WARNING"]
    assert len(warnings) == 1
    assert pauses[7] == longest
    api.fails = None
    run(api, lambda: not api.node["spec"]["taints"])


def test_a_server_that_hangs_blocks_nothing():
    """Its thread does not keep the process from ending, either."""
    api, hangs = Api("2"), threading.Event()
    api.merge = lambda *_given: hangs.wait(60)
    ticks = []

    async def work():
        told = ToldNode("worker", Taint("a/b", "NoSchedule"), False)
        report = node_report.NodeReport(told, lambda: Offered({}), lambda: True, lambda: api)
        task = asyncio.create_task(report.run())
        for _ in range(20):
            await asyncio.sleep(0.001)
            ticks.append(task.done())
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(work())
    hangs.set()
    assert ticks == [False] * 20


async def test_the_running_plugin_tells_what_it_offers(short_path, monkeypatch):
    """Three shares of the device that is there, and none of the other one."""
    api = Api("3")
    api.node["status"]["allocatable"]["example.com/dev"] = "2"
    monkeypatch.setattr(node_report, "Api", lambda _access: api)
    monkeypatch.setattr(node_report.in_pod, "access", lambda _environment: None)
    monkeypatch.setattr(node_report, "_LONGEST_WAITING", 0.05)
    monkeypatch.setattr(node_report, "_FIRST", 0.05)
    config = short_path / "config.yaml"
    config.write_text(CONFIG.replace("devices:", "replicas: 3\n    devices:") % {"here": short_path})
    told = ToldNode("worker", Taint("a/b", "NoSchedule"), True)
    running = asyncio.create_task(plugin.run(Source(str(config)), load(str(config)), told=told))

    async def said(text):
        while text not in str(api.node["status"]["conditions"]):
            assert not running.done()
            await asyncio.sleep(0.01)

    await asyncio.wait_for(said("not registered with the kubelet: example.com/dev"), 10)
    async with StandInKubelet(str(short_path / "dp")) as kubelet:
        await kubelet.registered("example.com/dev")
        await asyncio.wait_for(said("example.com/dev (offered: 3, allocatable: 2)"), 10)
        assert api.node["spec"]["taints"] == [TAINT]
        api.node["status"]["allocatable"]["example.com/dev"] = "3"
        await asyncio.wait_for(said("'status': 'True', 'reason': 'Allocatable'"), 10)
        assert api.node["spec"]["taints"] == []
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(running, 10)
