"""The DevicePlugin service, called as the kubelet calls it."""

import asyncio
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from node_device_plugin.declaration import Device, Resource, parse_resources
from node_device_plugin.devices import commands
from node_device_plugin.devices.table import DeviceTable
from node_device_plugin.kubelet.device_plugin import server as device_plugin
from node_device_plugin.kubelet.device_plugin.server import DevicePluginServer, Stream
from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

DEVICES: dict[str, Any] = {
    "name": "example.com/dev",
    "devices": [{"id": "d0", "numa_node": 0}, {"id": "d1"}],
    "env": {"DEV_{index}": "{id}"},
}
(RESOURCE,) = parse_resources([DEVICES])


def health(message: api.ListAndWatchResponse) -> list[str]:
    return ["%s %s" % (device.ID, device.health) for device in message.devices]


async def test_the_first_change_goes_out_at_once_and_those_right_after_it_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    over = asyncio.Event()

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await over.wait()

    async def paused(times: int) -> None:
        while len(pauses) < times:
            await asyncio.sleep(0)
        over.clear()

    async def others_had_their_turn() -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    monkeypatch.setattr(device_plugin, "asyncio", types.SimpleNamespace(**{**vars(asyncio), "sleep": pause}))
    table = DeviceTable(RESOURCE)
    table.update({"d0": None, "d1": None})
    service = DevicePluginServer(table, coalesce=0.3)
    heard: asyncio.Queue[list[str]] = asyncio.Queue()

    async def listen() -> None:
        async for message in service.ListAndWatch(api.Empty(), None):
            heard.put_nowait(health(message))

    listener = asyncio.create_task(listen())
    assert await heard.get() == ["d0 Healthy", "d1 Healthy"]
    table.update({"d0": "gone"})
    assert await heard.get() == ["d0 Unhealthy", "d1 Healthy"]
    await paused(1)
    table.update({"d1": "gone"})
    await others_had_their_turn()
    table.update({"d0": None})
    await others_had_their_turn()
    assert heard.empty()
    over.set()
    assert await heard.get() == ["d0 Healthy", "d1 Unhealthy"]
    # A change that is taken back during the pause is none.
    await paused(2)
    table.update({"d0": "gone"})
    table.update({"d0": None})
    over.set()
    await others_had_their_turn()
    assert heard.empty()
    # The pause does not hold up the end.
    table.update({"d0": "gone"})
    assert await heard.get() == ["d0 Unhealthy", "d1 Unhealthy"]
    await paused(3)
    service.stream.end()
    await listener
    assert pauses == [0.3] * 3


class Aborted(Exception):
    """What a call was ended with."""


class Context:
    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted("%s: %s" % (code.name, details))


def service(table_reasons: Any = None, **keys: Any) -> DevicePluginServer:
    (resource,) = parse_resources([{**DEVICES, **keys}])
    table = DeviceTable(resource)
    table.update(table_reasons or {"d0": None, "d1": None})
    return DevicePluginServer(table)


async def options(asked: DevicePluginServer) -> api.DevicePluginOptions:
    return await asked.GetDevicePluginOptions(api.Empty(), None)


async def test_a_newer_stream_ends_the_older_one_and_stays_open_without_it() -> None:
    stream = Stream()
    older, newer = stream.opened(), stream.opened()
    first = older.__enter__()
    second = newer.__enter__()
    older.__exit__(None, None, None)
    assert (first.done(), second.done(), stream.is_open) == (True, False, True)
    stream.end()
    # A server that stops may end it again.
    stream.end()
    newer.__exit__(None, None, None)
    assert (second.done(), stream.is_open, stream.age) == (True, False, None)
    stream.end()


async def test_only_what_a_resource_asks_for_is_offered() -> None:
    assert await options(service()) == api.DevicePluginOptions()
    assert (await options(service(preference="packed"))).get_preferred_allocation_available
    assert (await options(service(pre_start={"command": ["/bin/true"]}))).pre_start_required


async def test_a_known_numa_node_is_told_and_an_unknown_one_left_out() -> None:
    stream = service().ListAndWatch(api.Empty(), None)
    message = await stream.__anext__()
    d0, d1 = message.devices
    assert d0.HasField("topology")
    assert [node.ID for node in d0.topology.nodes] == [0]
    assert not d1.HasField("topology")


async def test_every_container_request_is_answered_in_its_order() -> None:
    request = api.AllocateRequest()
    request.container_requests.add(devices_ids=["d1"])
    request.container_requests.add(devices_ids=["d0"])
    answer = await service().Allocate(request, Context())
    assert [dict(each.envs) for each in answer.container_responses] == [{"DEV_0": "d1"}, {"DEV_0": "d0"}]


async def test_what_was_given_is_logged_after_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    request = api.AllocateRequest()
    request.container_requests.add(devices_ids=["d1", "d0"])
    with caplog.at_level("INFO"):
        await service().Allocate(request, Context())
        assert caplog.messages == []
        await asyncio.sleep(0)
    assert caplog.messages == [
        'allocated devices resource=example.com/dev devices=["d0", "d1"] given=["DEV_0", "DEV_1"]'
    ]


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (["d0", "dx"], "NOT_FOUND: the plugin offers no device dx of example.com/dev"),
        (["d1"], "FAILED_PRECONDITION: example.com/dev: device d1: /dev/x: gone"),
        (["d0", "d1"], "RESOURCE_EXHAUSTED: a container may have at most 1 of example.com/dev"),
    ],
)
async def test_what_cannot_be_given_is_refused_with_a_status(ids: list[str], says: str) -> None:
    request = api.AllocateRequest()
    request.container_requests.add(devices_ids=ids)
    asked = service({"d0": None, "d1": "/dev/x: gone"}, **({"container_limit": 1} if says.startswith("RES") else {}))
    with pytest.raises(Aborted) as caught:
        await asked.Allocate(request, Context())
    assert str(caught.value).startswith(says)


async def test_a_preference_is_answered_for_each_container() -> None:
    request = api.PreferredAllocationRequest()
    request.container_requests.add(available_deviceIDs=["d1", "d0"], allocation_size=1)
    request.container_requests.add(available_deviceIDs=["d1", "d0"], must_include_deviceIDs=["d1"], allocation_size=1)
    answer = await service(preference="packed").GetPreferredAllocation(request, Context())
    assert [list(each.deviceIDs) for each in answer.container_responses] == [["d0"], ["d1"]]


async def test_a_reset_before_a_container_starts(tmp_path: Path) -> None:
    command = [
        "/bin/sh",
        "-c",
        'test $DEVICE_ID != d1 || { echo stuck >&2; exit 1; }; touch "%s/$DEVICE_ID"' % tmp_path,
    ]
    asked = service(pre_start={"command": command, "timeout": 5})
    await asked.PreStartContainer(api.PreStartContainerRequest(devices_ids=["d0"]), Context())
    assert [path.name for path in tmp_path.iterdir()] == ["d0"]
    with pytest.raises(Aborted, match=r"FAILED_PRECONDITION: .*device d1: /bin/sh ended with 1: stuck"):
        await asked.PreStartContainer(api.PreStartContainerRequest(devices_ids=["d0", "d1"]), Context())
    with pytest.raises(Aborted, match="NOT_FOUND"):
        await asked.PreStartContainer(api.PreStartContainerRequest(devices_ids=["dx"]), Context())


async def test_a_reset_that_hangs_holds_up_nothing_but_its_container() -> None:
    asked = service(pre_start={"command": ["/bin/sleep", "60"], "timeout": 25})
    hanging = asyncio.create_task(asked.PreStartContainer(api.PreStartContainerRequest(devices_ids=["d0"]), Context()))
    await asyncio.sleep(0.05)
    request = api.AllocateRequest()
    request.container_requests.add(devices_ids=["d0"])
    assert await asked.Allocate(request, Context())
    assert not hanging.done()
    hanging.cancel()
    with pytest.raises(asyncio.CancelledError):
        await hanging


async def test_the_time_limit_of_a_reset_is_for_all_devices_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_AT_ONCE", 1)
    asked = service(pre_start={"command": ["/bin/sleep", "60"], "timeout": 1})
    both = api.PreStartContainerRequest(devices_ids=["d0", "d1"])
    said = r"device d0: /bin/sleep took longer than .* s; device d1: pre_start.timeout"
    with pytest.raises(Aborted, match=said):
        await asked.PreStartContainer(both, Context())


async def test_what_is_left_of_the_time_limit_is_all_that_a_later_device_gets() -> None:
    """Eight run at a time; the ninth begins when they have ended."""
    command = ["/bin/sh", "-c", "test $DEVICE_ID = d8 && exec sleep 60; sleep 0.5"]
    devices = [{"id": "d%d" % number} for number in range(9)]
    asked = service(devices=devices, pre_start={"command": command, "timeout": 5})
    everything = api.PreStartContainerRequest(devices_ids=[device["id"] for device in devices])
    with pytest.raises(Aborted, match=r"device d8: /bin/sh took longer than [0-4]\.[0-9]+ s$"):
        await asked.PreStartContainer(everything, Context())


class Kept:
    """A keeper that notes every call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[str]]] = []
        self.changed: Optional[str] = None

    def allocated(self, resource: Resource, kubelet_ids: Sequence[str]) -> None:
        self.calls.append((f"allocated of {resource.name}", list(kubelet_ids)))

    async def why_changed(
        self, resource: Resource, devices: Sequence[Device], kubelet_ids: Sequence[str]
    ) -> Optional[str]:
        self.calls.append((f"changed? {[each.id for each in devices]} of {resource.name}", list(kubelet_ids)))
        return self.changed


@pytest.mark.parametrize("injection", ["cdi", "device_nodes"])
async def test_only_a_device_that_a_path_gives_again_may_be_another_one_by_now(injection: str) -> None:
    keys = {"injection": injection, "replicas": 2, "pre_start": {"command": ["/bin/true"]}}
    (resource,) = parse_resources([{**DEVICES, **keys}])
    table = DeviceTable(resource)
    table.update({"d0": None, "d1": None})
    keeper = Kept()
    asked = DevicePluginServer(table, keeper=keeper)
    request = {"container_requests": [{"devices_ids": ["d0::1"]}, {"devices_ids": ["d1::0"]}]}
    await asked.Allocate(api.AllocateRequest(**request), Context())
    allocated = [("allocated of example.com/dev", ["d0::1"]), ("allocated of example.com/dev", ["d1::0"])]
    assert keeper.calls == allocated
    both = api.PreStartContainerRequest(devices_ids=["d1::0", "d0::1"])
    await asked.PreStartContainer(both, Context())
    is_asked = injection == "device_nodes"
    assert keeper.calls[2:] == [("changed? ['d0', 'd1'] of example.com/dev", ["d1::0", "d0::1"])] * is_asked
    keeper.changed = "it is another one"
    if is_asked:
        with pytest.raises(Aborted, match=r"^FAILED_PRECONDITION: example.com/dev: it is another one$"):
            await asked.PreStartContainer(both, Context())
    else:
        await asked.PreStartContainer(both, Context())
