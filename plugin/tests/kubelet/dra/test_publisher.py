"""The publisher, against a server with an API server's rules for ResourceSlices."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, Callable

import pytest

from node_device_plugin.cluster.api import Api, ApiError, Unavailable
from node_device_plugin.declaration.model import DraDriver
from node_device_plugin.kubelet.dra import publisher as module
from node_device_plugin.kubelet.dra import slices
from node_device_plugin.kubelet.dra.publisher import Publisher, connect
from node_device_plugin.kubelet.dra.slices import Pool, SliceDevice

from .fake_api import FakeApi, serving

DRIVER = DraDriver("dra.example.com", "w1", "")
NO_TAINTS = "the API server stores no taints: an unhealthy device leaves its ResourceSlice"


def pool(number: int, name: str = "w1/camera.example.com") -> Pool:
    return Pool(name, tuple(SliceDevice(f"d{each}", {"id": f"d{each}"}) for each in range(number)))


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with serving() as fake:
        yield fake


@contextlib.asynccontextmanager
async def running(
    api: FakeApi, *pools: Pool, registered: bool = True, connect: Callable[[], Api] | None = None
) -> AsyncIterator[Publisher]:
    publisher = Publisher(DRIVER, connect or api.connect)
    publisher.publish(pools)
    publisher.set_registered(registered)
    task = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> float:
    """Wait for a condition; returns the seconds that it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, "not in time"
        await asyncio.sleep(0.005)
    return time.monotonic() - began


async def rest(api: FakeApi, seconds: float = 0.5) -> None:
    """Return when nobody has written for so long."""
    count = -1
    while count != len(api.writes):
        count = len(api.writes)
        await asyncio.sleep(seconds)


def devices(api: FakeApi) -> list[str]:
    with api.news:
        return sorted(device["name"] for each in api.slices.values() for device in each["spec"].get("devices", ()))


#: Seconds for what takes 0.2 s on an idle machine, and less than the longest pause (10 s).
SOON = 8.0


def has(api: FakeApi, number: int) -> Callable[[], bool]:
    return lambda: len(devices(api)) == number


async def test_pools_are_published_at_once_and_then_nothing_is_written(api: FakeApi) -> None:
    async with running(api, pool(2)) as publisher:
        await until(has(api, 2))
        (only,) = api.slices.values()
        assert only["metadata"]["ownerReferences"][0]["uid"] == api.node_uid
        await until(lambda: api.watches)
        publisher.publish([pool(3)])
        assert await until(has(api, 3)) < SOON
        publisher.publish([pool(3)])
        await asyncio.sleep(0.5)
        assert [method for method, _name in api.writes] == ["POST", "PUT"]
        # Nor is anything read: not after the same pools again, and not after the events of our own writes.
        assert [each for each in api.requests if "/nodes/" in each] == ["GET /api/v1/nodes/w1"] * 2
        assert publisher.problem is None


async def test_an_attribute_that_is_left_out_is_logged_once(api: FakeApi, caplog: pytest.LogCaptureFixture) -> None:
    publisher = Publisher(DRIVER, api.connect)
    for number in (1, 2):
        publisher.publish([pool(number)._replace(left_out=("d0: the attribute a is left out: b",))])
    assert [each.getMessage() for each in caplog.records] == [
        'the API does not accept an attribute pool=w1/camera.example.com reason="d0: the attribute a is left out: b"'
    ]


async def test_a_device_that_goes_and_returns_is_not_logged_again(
    api: FakeApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_TOLD", 3)
    publisher = Publisher(DRIVER, api.connect)
    for _turn in range(3):
        publisher.publish([pool(1)._replace(left_out=("d0: no a", "d0: no b"))])
        publisher.publish([pool(0)])
    assert len(caplog.records) == 2
    # What is remembered does not grow with each device that ever was there.
    for number in range(20):
        publisher.publish([pool(1)._replace(left_out=(f"d{number}: no c",))])
    assert len(publisher._told) <= 3


async def test_nothing_is_written_while_the_kubelet_does_not_have_the_driver(api: FakeApi) -> None:
    async with running(api, pool(2), registered=False) as publisher:
        await until(lambda: api.watches)
        await asyncio.sleep(0.3)
        assert {each.partition(" ")[0] for each in api.requests} == {"GET", "WATCH"}
        assert not any("/nodes/" in each for each in api.requests)
        publisher.set_registered(True)
        assert await until(has(api, 2)) < SOON
        publisher.set_registered(False)
        publisher.publish([pool(3)])
        api.delete()
        await asyncio.sleep(0.3)
        assert len(api.writes) == 1
        publisher.set_registered(True)
        await until(has(api, 3))


async def test_nothing_more_is_written_once_the_kubelet_no_longer_has_the_driver(api: FakeApi) -> None:
    loop = asyncio.get_running_loop()
    async with running(api, pool(200)) as publisher:
        api.stored = lambda _name: loop.call_soon_threadsafe(publisher.set_registered, False) and None
        await until(lambda: api.writes)
        await asyncio.sleep(0.5)
        assert len(api.writes) == 1


async def test_nothing_is_removed_before_it_is_known_what_is_wanted(api: FakeApi) -> None:
    async with running(api, pool(2)):
        await until(has(api, 2))
    publisher = Publisher(DRIVER, api.connect)
    publisher.set_registered(True)
    task = asyncio.create_task(publisher.run())
    await until(lambda: api.watches == 2)
    await asyncio.sleep(0.2)
    assert len(api.writes) == 1
    publisher.publish([])
    await until(lambda: not api.slices)
    task.cancel()


async def test_slices_come_back_within_a_second_of_each_deletion(api: FakeApi) -> None:
    async with running(api, pool(130)) as publisher:
        await until(has(api, 130))
        await until(lambda: api.watches)
        for _kubelet_start in range(3):
            api.delete()
            assert await until(has(api, 130)) < SOON
        assert publisher.problem is None


async def test_slices_come_back_if_the_deletion_follows_our_write(api: FakeApi) -> None:
    """The watch tells of the deletion before the write has its answer."""
    deleted = []

    def delete(name: str) -> None:
        if not deleted:
            deleted.append(name)
            api.delete(name)
            time.sleep(0.2)

    async with running(api, pool(0)) as publisher:
        await until(lambda: api.slices)
        await until(lambda: api.watches)
        api.stored = delete
        publisher.publish([pool(2)])
        await until(lambda: deleted)
        assert await until(has(api, 2)) < SOON


async def test_a_watch_that_lags_behind_our_writes_changes_nothing(
    api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    api.delay = 0.3
    async with running(api, pool(1)) as publisher:
        await until(lambda: api.watches)
        for number in (1, 2, 3):
            publisher.publish([pool(number)])
            await until(has(api, number))
        await asyncio.sleep(1.5)
        assert [method for method, _name in api.writes] == ["POST", "PUT", "PUT"]
    assert "cannot" not in caplog.text


async def test_slices_come_back_with_the_kubelet_if_the_watch_is_dead(api: FakeApi) -> None:
    api.is_mute = True
    async with running(api, pool(2)) as publisher:
        await until(has(api, 2))
        publisher.set_registered(False)
        api.delete()
        publisher.set_registered(True)
        assert await until(has(api, 2)) < SOON


async def test_foreign_slices_of_the_driver_go(api: FakeApi) -> None:
    async with running(api, pool(2), pool(1, "w1/disk.example.com")):
        await until(has(api, 3))
    with api.news:
        (first, *_others) = api.slices.values()
        for name, spec in {
            "foreign": {**first["spec"], "pool": {**first["spec"]["pool"], "name": "w1/other"}},
            "same-pool": first["spec"],
            "other-driver": {**first["spec"], "driver": "gpu.example.com"},
            "other-node": {**first["spec"], "nodeName": "w2"},
        }.items():
            api.put("POST", {"metadata": {"name": name}, "spec": spec})
    api.writes.clear()
    async with running(api, pool(2)) as publisher:
        await until(lambda: {"other-driver", "other-node"} < set(api.slices) and len(api.slices) == 3)
        with api.news:
            api.put("POST", {"metadata": {"name": "later"}, "spec": api.slices["other-driver"]["spec"]})
            api.put("POST", {"metadata": {"name": "late"}, "spec": first["spec"]})
        await until(lambda: "late" not in api.slices)
        assert "later" in api.slices
        assert {method for method, _name in api.writes} == {"DELETE"}
        assert publisher.problem is None


async def test_an_edit_by_others_is_undone(api: FakeApi) -> None:
    async with running(api, pool(2)):
        await until(has(api, 2))
        await until(lambda: api.watches)
        with api.news:
            (only,) = api.slices.values()
            api.put("PUT", {**only, "spec": {**only["spec"], "devices": []}})
        assert await until(has(api, 2)) < SOON


async def test_the_authorizer_may_learn_late_that_a_slice_is_ours(api: FakeApi) -> None:
    refused = []

    def refuse(method: str, _path: str) -> int | None:
        if method == "PUT" and len(refused) < 3:
            refused.append(method)
            return 403
        return None

    async with running(api, pool(1)) as publisher:
        await until(has(api, 1))
        api.refuse = refuse
        publisher.publish([pool(2)])
        assert await until(has(api, 2)) < SOON
        assert publisher.problem is None
    assert len(refused) == 3


@pytest.mark.parametrize("code", [403, 404])
async def test_a_slice_that_is_gone_is_not_waited_for(
    api: FakeApi, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A node's PUT of a slice that is gone is refused with 403, any other user's with 404."""
    monkeypatch.setattr(module, "_UNTIL_PERMITTED", 10.0)

    def refuse(method: str, path: str) -> int | None:
        if method != "PUT":
            return None
        if path.rpartition("/")[2] in api.slices:
            api.delete()
        return code

    async with running(api, pool(1)) as publisher:
        await until(has(api, 1))
        await until(lambda: api.watches)
        api.refuse = refuse
        publisher.publish([pool(2)])
        assert await until(has(api, 2)) < SOON
    assert "cannot" not in caplog.text


#: What no API server answers, by a name: to which method, of which kind of answer or event, and what becomes of it.
SPOILED: dict[str, tuple[str, str, Callable[[Any], Any]]] = {
    "node without uid": ("GET", "Node", lambda each: each["metadata"].pop("uid")),
    "node of null": ("GET", "Node", lambda each: each.update(metadata=None)),
    "null in a list": ("GET", "ResourceSliceList", lambda each: each.update(items=[None])),
    "no list": ("GET", "ResourceSliceList", lambda each: each.update(items=1)),
    "no metadata of a list": ("GET", "ResourceSliceList", lambda each: each.update(metadata=[1])),
    "slice without pool": ("GET", "ResourceSliceList", lambda each: each["items"][0]["spec"].pop("pool")),
    "created without version": ("POST", "ResourceSlice", lambda each: each["metadata"].pop("resourceVersion")),
    "replaced without name": ("PUT", "ResourceSlice", lambda each: each["metadata"].pop("name")),
    "event without pool": ("WATCH", "MODIFIED", lambda each: each["object"]["spec"].pop("pool")),
    "event without version": ("WATCH", "ADDED", lambda each: each["object"]["metadata"].pop("resourceVersion")),
    "event without metadata": ("WATCH", "ADDED", lambda each: each["object"].pop("metadata")),
}


@pytest.mark.parametrize("name", SPOILED)
async def test_what_no_api_server_answers_is_told_and_tried_again(
    api: FakeApi, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    """A defect here would end the whole plugin, with the device plugins of the node."""
    method, kind, change = SPOILED[name]

    def spoil(asked: str, content: Any) -> Any:
        if asked == method and kind in (content.get("kind"), content.get("type")):
            change(content)
        return content

    async with running(api, pool(2)):
        await until(has(api, 2))
    api.spoil = spoil
    async with running(api, pool(3), pool(1, "w1/disk.example.com")) as publisher:
        await until(lambda: "does not answer as an API server" in caplog.text)
        assert "Traceback" not in caplog.text
        api.spoil = lambda _method, content: content
        await until(has(api, 4))
        await until(lambda: publisher.problem is None)


def paths(part: Any) -> Iterator[tuple[Any, ...]]:
    """The path of each part of JSON."""
    for key, each in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield (key,)
        yield from ((key, *rest) for rest in paths(each))


def test_every_part_that_is_read_of_a_slice_is_checked(api: FakeApi) -> None:
    pools = [sick(2, "d1")]
    (write,) = slices.changes(DRIVER, "u", pools, [])
    whole = api.put("POST", write.new or {})[1]
    outcomes = set()
    for path in list(paths(whole)):
        for instead in (None, 7, "x", [], {}, [None], {"name": []}):
            spoiled = copy.deepcopy(whole)
            functools.reduce(lambda part, key: part[key], path[:-1], spoiled)[path[-1]] = instead
            try:
                with module._understood(api.connect(), module._SLICES):
                    module._check(spoiled)
            except ApiError:
                outcomes.add("refused")
                continue
            slices.changes(DRIVER, "u", pools, [spoiled])
            slices.changes(DRIVER, "u", [], [spoiled])
            outcomes.add("used")
    assert outcomes == {"refused", "used"}


async def test_a_missing_right_is_told_and_tried_again(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_UNTIL_PERMITTED", 0.05)
    api.refuse = lambda method, _path: 403 if method == "POST" else None
    async with running(api, pool(1)) as publisher:
        await until(lambda: publisher.problem)
        assert publisher.problem is not None
        assert publisher.problem.endswith("give this user create on resourceslices.resource.k8s.io in a ClusterRole")
        api.refuse = lambda _method, _path: None
        await until(has(api, 1))
        await until(lambda: publisher.problem is None)


async def test_a_slice_that_the_server_refuses_keeps_no_other_away(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_pause", lambda number, _problem=None: 0.02 * 4**number)
    refused = []

    def refuse(method: str, _path: str) -> int | None:
        if method == "POST" and "w1-bad" in api.writes[-1][1]:
            refused.append(time.monotonic())
            return 422
        return None

    api.refuse = refuse
    async with running(api, pool(1, "w1/bad"), pool(2, "w1/good")) as publisher:
        await until(has(api, 2))
        await until(lambda: publisher.problem)
        await until(lambda: len(refused) == 4)
        # Later and later, but a change is tried at once.
        assert refused[3] - refused[2] > 1
        await asyncio.sleep(0.5)
        publisher.publish([pool(2, "w1/good")])
        await until(lambda: publisher.problem is None, SOON)


async def test_a_field_that_the_server_drops_is_told_and_not_sent_again(api: FakeApi) -> None:
    def admit(each: dict[str, Any]) -> None:
        for device in each["spec"].get("devices", ()):
            device["attributes"].pop("id", None)

    api.admit = admit
    async with running(api, pool(2)) as publisher:
        await until(lambda: publisher.problem)
        (name,) = api.slices
        assert publisher.problem == (
            f"the API server changed ResourceSlice {name} while it stored it: spec.devices[0].attributes.id differs "
            "from what was sent: check its feature gates and its mutating admission policies"
        )
        await asyncio.sleep(0.5)
        assert len(api.writes) == 1
        api.admit = lambda _object: None
        publisher.publish([pool(3)])
        await until(lambda: publisher.problem is None)
        assert len(api.writes) == 2


def sick(number: int, *names: str) -> Pool:
    devices = (each._replace(is_healthy=each.name not in names) for each in pool(number).devices)
    return pool(number)._replace(devices=tuple(devices))


def drop_taints(each: dict[str, Any]) -> None:
    for device in each["spec"].get("devices", ()):
        device.pop("taints", None)


def tainted(api: FakeApi) -> set[str]:
    with api.news:
        return set().union(*map(slices.tainted, api.slices.values()))


async def test_an_unhealthy_device_stays_with_a_taint_until_it_is_healthy(api: FakeApi) -> None:
    async with running(api, sick(3, "d1")) as publisher:
        await until(lambda: tainted(api) == {"d1"})
        assert has(api, 3)()
        await asyncio.sleep(0.3)
        assert publisher.problem is None
    # The server has set the taint's time, which a restart leaves alone.
    async with running(api, sick(3, "d1")) as publisher:
        await until(lambda: api.watches > 1)
        await asyncio.sleep(0.5)
        assert len(api.writes) == 1
        publisher.publish([pool(3)])
        await until(lambda: not tainted(api))
    assert {each["spec"]["pool"]["generation"] for each in api.slices.values()} == {1}


async def test_where_the_server_drops_taints_an_unhealthy_device_is_never_there(
    api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    api.admit = drop_taints
    seen: list[list[str]] = []
    api.stored = lambda _name: seen.append(devices(api))
    async with running(api, sick(3, "d1")) as publisher:
        await until(has(api, 2))
        publisher.publish([sick(3, "d2")])
        await until(lambda: devices(api) == ["d0", "d1"])
        assert publisher.problem is None
        assert seen == [["d0", "d2"], ["d0", "d1"]]
        # Its next version has them.
        api.admit = lambda _object: None
        publisher.set_registered(True)
        await until(lambda: tainted(api) == {"d2"})
        # And one after it has not.
        api.admit = drop_taints
        publisher.set_registered(True)
        publisher.publish([sick(3, "d1")])
        await until(lambda: devices(api) == ["d0", "d2"])
    assert [each.getMessage() for each in caplog.records].count(NO_TAINTS) == 1


async def test_a_server_that_drops_taints_beside_one_that_does_not(
    api: FakeApi, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    async with running(api, sick(3, "d1")) as publisher:
        await until(lambda: tainted(api) == {"d1"})
        api.admit = drop_taints
        publisher.publish([sick(4, "d1")])
        await until(lambda: devices(api) == ["d0", "d2", "d3"])
        await until(lambda: publisher.problem is None)
    assert [each.getMessage() for each in caplog.records].count(NO_TAINTS) == 1


async def test_a_slice_that_is_gone_has_no_problem(api: FakeApi) -> None:
    api.admit = lambda each: each["spec"].pop("devices")
    async with running(api, pool(2)) as publisher:
        await until(lambda: publisher.problem)
        await until(lambda: api.watches)
        publisher.set_registered(False)
        with api.news:
            api.slices.clear()
            api.compact()
        await until(lambda: publisher.problem is None)


async def test_a_watch_that_ended_goes_on_where_it_was(api: FakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WATCH", 1)
    monkeypatch.setattr(module, "_SHORT", 0.5)
    async with running(api, pool(1)):
        await until(lambda: api.watches == 3)
        api.delete()
        assert await until(has(api, 1)) < SOON
    lists = [each for each in api.requests if each.startswith("GET /apis/")]
    assert len(lists) == 1


async def test_changes_that_the_server_no_longer_has_are_listed(api: FakeApi) -> None:
    async with running(api, pool(1)) as publisher:
        await until(has(api, 1))
        await until(lambda: api.watches)
        # Nobody tells of this deletion.
        with api.news:
            api.slices.clear()
            api.compact()
        assert await until(has(api, 1)) < SOON
        assert publisher.problem is None


async def test_a_server_that_is_away_is_asked_again_without_haste(api: FakeApi) -> None:
    asked = []

    def ask() -> Api:
        asked.append(time.monotonic())
        return api.connect()

    async with running(api, pool(1), connect=ask) as publisher:
        await until(has(api, 1))
        await until(lambda: api.watches)
        asked.clear()
        api.refuse = lambda _method, _path: 503
        api.end_watches()
        await until(lambda: publisher.problem)
        assert "answered 503" in (publisher.problem or "")
        for _scan in range(100):
            publisher.publish([pool(2)])
            await asyncio.sleep(0.02)
        # Without pauses there would be hundreds.
        assert 4 < len(asked) < 20
        api.refuse = lambda _method, _path: None
        await until(has(api, 2), 15)
        await until(lambda: publisher.problem is None)


async def test_a_refused_watch_waits_as_the_server_asks_and_lists_nothing_again(api: FakeApi) -> None:
    def lists() -> int:
        return sum(each.startswith("GET /apis/") for each in api.requests)

    asked: list[float] = []

    def refuse(method: str, _path: str) -> int | None:
        if method != "WATCH":
            return None
        asked.append(time.monotonic())
        return 429

    api.refuse, api.retry_after = refuse, "1"
    async with running(api, pool(1)) as publisher:
        await until(lambda: len(asked) == 4)
        assert all(after - before >= 0.99 for before, after in zip(asked, asked[1:]))
        assert lists() == 1
        assert "answered 429" in (publisher.problem or "")
        api.refuse = lambda _method, _path: None
        await until(lambda: api.watches)
        api.delete()
        await until(has(api, 1))


async def test_a_refused_list_is_told_before_the_next_attempt(api: FakeApi) -> None:
    """A client that tries again by itself each second would ask far more often than the pauses of all nodes allow."""
    api.refuse, api.retry_after = lambda _method, _path: 429, "1"
    async with running(api, pool(1)) as publisher:
        await until(lambda: publisher.problem, SOON)
        assert len(api.requests) == 1


async def test_a_list_that_fails_late_is_asked_again_without_haste(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a list whose retries took longer than a watch that counts as good."""
    monkeypatch.setattr(module, "_SHORT", 0.0)
    api.refuse = lambda _method, _path: 503
    async with running(api, pool(1)):
        await until(lambda: api.requests)
        await asyncio.sleep(1.5)
        assert len(api.requests) < 20


def test_an_overloaded_server_has_longer_pauses() -> None:
    assert 8 <= module._pause(100, ApiError("refused")) <= 10
    assert 24 <= module._pause(100, Unavailable("away")) <= 30
    assert module._pause(1, Unavailable("busy", 60.0)) == 60
    assert module._pause(1, Unavailable("away")) < 1


async def test_credentials_are_read_again_after_a_failure(api: FakeApi) -> None:
    def renewed() -> Api:
        raise ApiError("the token has expired")

    async with running(api, pool(1), connect=renewed) as publisher:
        await until(lambda: publisher.problem == "the token has expired")
        publisher._connect = api.connect
        await until(has(api, 1))
        await until(lambda: publisher.problem is None)


async def test_two_instances_agree_and_then_rest(api: FakeApi) -> None:
    """As while a DaemonSet's pods overlap."""
    async with running(api, pool(200)) as one, running(api, pool(200)) as other:
        await until(has(api, 200))
        await until(lambda: one.problem is None and other.problem is None)
        await rest(api)
        assert len(api.slices) == 4
        api.writes.clear()
        one.publish([pool(100)])
        other.publish([pool(100)])
        await until(has(api, 100))
        await rest(api)
        number = len(api.writes)
        await asyncio.sleep(0.5)
        assert len(api.writes) == number
        assert one.problem is None
        assert other.problem is None


@pytest.mark.parametrize("number", [1, 2])
async def test_a_name_that_another_node_took_is_not_needed(api: FakeApi, number: int) -> None:
    """The names can be foreseen, and each node may create slices of any name for itself."""
    for write in slices.changes(DRIVER, api.node_uid, [pool(130)], []):
        assert write.new is not None
        api.put("POST", {**write.new, "spec": {**write.new["spec"], "nodeName": "w2", "devices": []}})
    stolen = set(api.slices)
    async with contextlib.AsyncExitStack() as stack:
        instances = [await stack.enter_async_context(running(api, pool(130))) for _instance in range(number)]
        await until(lambda: len(api.slices) == 6 and len(devices(api)) == 130)
        await until(lambda: all(each.problem is None for each in instances))
        # An instance that a busy machine lets run late may publish once more, and take it back.
        await rest(api, 2.0)
        await until(lambda: len(api.slices) == 6 and len(devices(api)) == 130)
    # A thread may still write after its publisher has ended.
    await rest(api)
    names, count = set(api.slices), len(api.writes)
    assert len(names - stolen) == 3
    # The other names stay over a restart.
    async with running(api, pool(130)) as publisher:
        await until(lambda: api.watches > number)
        await asyncio.sleep(0.3)
        assert (set(api.slices), len(api.writes)) == (names, count)
        publisher.publish([pool(129)])
        await until(has(api, 129))
        assert set(api.slices) == names


async def test_a_quarrel_about_the_slices_slows_down(api: FakeApi) -> None:
    """Each waits for longer and longer; without pauses there would be many writes a second."""

    def longest() -> float:
        return max((after - before for before, after in zip(api.moments, api.moments[1:])), default=0.0)

    async with running(api, pool(1)), running(api, pool(2)):
        await until(lambda: len(api.writes) > 3)
        await until(lambda: longest() > 1, 20)


async def test_a_node_that_joined_again_owns_its_slices(api: FakeApi) -> None:
    async with running(api, pool(1)):
        await until(has(api, 1))
        await until(lambda: api.watches)
        api.node_uid = "6a1c0b1e-0000-4000-8000-000000000002"
        api.delete()
        await until(has(api, 1))
        (only,) = api.slices.values()
        assert only["metadata"]["ownerReferences"][0]["uid"] == api.node_uid


async def test_a_thousand_devices(api: FakeApi) -> None:
    async with running(api, pool(1000)) as publisher:
        await until(has(api, 1000))
        publisher.publish([pool(1000)._replace(devices=pool(1000).devices[1:])])
        assert await until(has(api, 999)) < SOON
        assert [method for method, _name in api.writes] == ["POST"] * 16 + ["PUT"]


# The connection


def test_a_service_uses_a_kubeconfig_and_a_pod_its_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ApiError, match=r"^/none/kubelet\.conf: No such file or directory$"):
        connect(DRIVER._replace(kubeconfig="/none/kubelet.conf"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ApiError, match=r"^the variable KUBERNETES_SERVICE_HOST is not set: "):
        connect(DRIVER._replace(kubeconfig=""))


def test_a_kubeconfig_that_needs_a_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "kubelet.conf"
    path.write_text(
        """{current-context: a, contexts: [{name: a, context: {cluster: a, user: a}}],
        clusters: [{name: a, cluster: {server: "https://localhost"}}],
        users: [{name: a, user: {exec: {command: "%s"}}}]}"""
        % (tmp_path / "program")
    )
    with pytest.raises(ApiError) as caught:
        connect(DRIVER._replace(kubeconfig=str(path)))
    assert str(caught.value) == (
        f"{path}: exec is set, but the device plugin runs no program for credentials, because its sandbox lacks the "
        "program's files and rights: use a kubeconfig with a client certificate or a token"
    )
