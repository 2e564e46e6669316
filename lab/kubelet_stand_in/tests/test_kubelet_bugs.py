"""Bugs of the real kubelet that the stand-in imitates, so that a plugin's tests meet them."""

import asyncio
import os
import random

import pytest

from kubelet_stand_in import PodRejected, StandInKubelet
from kubelet_stand_in.device_manager import DeviceManager
from kubelet_stand_in.recorder import register
from node_device_plugin.kubelet.pod_resources import PodResourcesClient
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

RESOURCE = "example.com/serial"


async def test_the_end_of_an_old_stream_disconnects_the_new_plugin(kubelet, plugins):
    """kubernetes#127803."""
    old, new = await plugins(["a0"], "old"), await plugins(["a0"], "new")
    await old.register()
    await kubelet.registered(RESOURCE)
    await new.register()
    await kubelet.registered(RESOURCE)
    await old.stop()
    await kubelet.disconnected(RESOURCE)
    await kubelet.until(lambda: {"call": "ListAndWatch", "ended_by": "kubelet"} in new.calls)
    assert kubelet.devices(RESOURCE) == {"a0": "Unhealthy"}


async def test_an_old_stream_that_ends_before_does_no_harm(kubelet, plugins):
    old, new = await plugins(["a0"], "old"), await plugins(["a0"], "new")
    await old.register()
    await kubelet.registered(RESOURCE)
    await old.stop()
    await kubelet.disconnected(RESOURCE)
    await new.register()
    assert await kubelet.registered(RESOURCE) == {"a0": "Healthy"}


async def test_a_failed_dial_back_orphans_the_good_plugin(folder, plugins):
    async with StandInKubelet(folder) as kubelet:
        good = await plugins(["a0"])
        await good.register()
        await kubelet.registered(RESOURCE)
        kubelet.manager.clients._dial_timeout = 0.1
        outcome = await register(folder, RESOURCE, "nobody.sock")
        assert outcome == "UNKNOWN: failed to dial device plugin: context deadline exceeded"
        await good.stop()
        await asyncio.sleep(0.05)
        # The plugin is gone but still allocatable, because the kubelet did not notice.
        assert kubelet.devices(RESOURCE) == {"a0": "Healthy"}
        with pytest.raises(PodRejected, match="Unavailable"):
            await kubelet.allocate_pod("pod", {"main": {RESOURCE: 1}})


async def test_a_lost_stream_is_never_retried(kubelet, plugins):
    plugin = await plugins(["a0"])
    await plugin.register()
    await kubelet.registered(RESOURCE)
    await plugin.end_streams()
    await kubelet.disconnected(RESOURCE)
    calls = len(plugin.calls)
    await asyncio.sleep(0.1)
    assert len(plugin.calls) == calls
    assert kubelet.capacity().allocatable == {RESOURCE: 0}
    assert kubelet.capacity().capacity == {RESOURCE: 1}


async def test_the_options_of_the_register_request_are_ignored(kubelet, plugins):
    plugin = await plugins(["a0"], prefer=lambda available, size: available)
    await plugin.register()
    await kubelet.registered(RESOURCE)
    assert plugin.calls[0] == {"call": "GetDevicePluginOptions"}
    assert kubelet.manager.endpoints[RESOURCE].options.get_preferred_allocation_available


async def test_a_list_of_more_than_4_mib_ends_the_stream(kubelet, plugins):
    """kubernetes#109304."""
    plugin = await plugins(["%063d" % number for number in range(60_000)])
    assert await plugin.register() == "ok"
    await kubelet.disconnected(RESOURCE)
    assert kubelet.devices(RESOURCE) == {}


async def test_a_pod_of_a_resource_never_registered_runs_without_it_and_is_rejected_later(kubelet, plugins):
    pod = await kubelet.allocate_pod("early", {"main": {RESOURCE: 1}})
    assert not pod.containers["main"].CDI_devices
    plugin = await plugins(["a0"])
    await plugin.register()
    await kubelet.registered(RESOURCE)
    await kubelet.restart()
    [(_, status)] = kubelet.pods.pods()
    assert (status.phase, status.reason) == ("Failed", "UnexpectedAdmissionError")


async def test_a_pod_admitted_before_the_plugin_is_back_has_failed_for_good(kubelet, plugins):
    """kubernetes#125579."""
    plugin = await plugins(["a0"])
    await plugin.register()
    await kubelet.registered(RESOURCE)
    await kubelet.restart()
    with pytest.raises(PodRejected, match="no healthy devices present") as rejected:
        await kubelet.allocate_pod("pod", {"main": {RESOURCE: 1}})
    assert rejected.value.reason == "UnexpectedAdmissionError"
    await plugin.register()
    await kubelet.registered(RESOURCE)
    [(_, status)] = kubelet.pods.pods()
    assert status.phase == "Failed"


async def test_a_hung_allocate_stalls_the_admission_of_every_pod(kubelet, plugins):
    plugin, other = await plugins(["a0"]), await plugins(["b0"], "other", "example.com/other")
    released = asyncio.Event()

    async def hang(request, context):
        await released.wait()
        return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse()])

    plugin.Allocate = hang
    await plugin.stop()
    await plugin.start()
    await plugin.register()
    await other.register()
    await kubelet.registered(RESOURCE)
    await kubelet.registered("example.com/other")
    first = asyncio.ensure_future(kubelet.allocate_pod("first", {"main": {RESOURCE: 1}}))
    second = asyncio.ensure_future(kubelet.allocate_pod("second", {"main": {"example.com/other": 1}}))
    await asyncio.sleep(0.1)
    assert not first.done()
    assert not second.done()
    released.set()
    await asyncio.gather(first, second)


async def test_ids_come_in_no_order(folder, plugins):
    async with StandInKubelet(folder, chance=random.Random(1)) as kubelet:
        ids = ["a%d" % number for number in range(9)]
        asked = []
        plugin = await plugins(ids)

        async def remember(request, context):
            asked.extend(request.container_requests[0].devices_ids)
            return api.AllocateResponse(container_responses=[api.ContainerAllocateResponse()])

        plugin.Allocate = remember
        await plugin.stop()
        await plugin.start()
        await plugin.register()
        await kubelet.registered(RESOURCE)
        await kubelet.allocate_pod("pod", {"main": {RESOURCE: 9}})
        assert sorted(asked) == ids
        assert asked != ids


async def test_colliding_answers_of_two_plugins_are_only_logged(kubelet, plugins, caplog):
    def answer(value):
        return lambda ids: api.ContainerAllocateResponse(envs={"SAME": value})

    for name in ("first", "second"):
        plugin = await plugins([name], name, "example.com/" + name, answer=answer(name))
        await plugin.register()
        await kubelet.registered("example.com/" + name)
    pod = await kubelet.allocate_pod("pod", {"main": {"example.com/first": 1, "example.com/second": 1}})
    [variable] = pod.containers["main"].envs
    assert variable.value in (b"first", b"second")
    assert "conflicting setting" in caplog.text


async def test_a_held_device_that_is_dropped_from_the_list_reads_healthy(kubelet, plugins):
    plugin = await plugins(["a0", "a1"])
    await plugin.register()
    await kubelet.registered(RESOURCE)
    pod = await kubelet.allocate_pod("pod", {"main": {RESOURCE: 2}})
    await plugin.set_devices({"a1": "Unhealthy"})
    await kubelet.until(lambda: kubelet.devices(RESOURCE) == {"a1": "Unhealthy"})
    [status] = kubelet.manager.health.of(pod.uid, "main")
    health = {entry["resourceID"]: entry["health"] for entry in status["resources"]}
    assert health == {"a0": "Healthy", "a1": "Unhealthy"}


async def test_a_resource_without_devices_is_missing_from_pod_resources(kubelet, plugins):
    plugin = await plugins([])
    await plugin.register()
    await kubelet.registered(RESOURCE)
    async with PodResourcesClient(kubelet.pod_resources_socket) as client:
        assert await client.allocatable() == {}
    assert kubelet.checkpoint().registered == {RESOURCE: ()}


def test_an_empty_plugin_directory_resets_every_extended_resource(folder):
    os.makedirs(folder)
    assert DeviceManager(folder).should_reset_extended_resources()
    open(os.path.join(folder, ".dotfile"), "w").close()
    assert DeviceManager(folder).should_reset_extended_resources()
    os.mkdir(os.path.join(folder, "anything"))
    assert not DeviceManager(folder).should_reset_extended_resources()


async def test_only_sockets_at_the_top_are_swept(folder, plugins):
    kubelet = StandInKubelet(folder)
    below = await plugins(["a0"])
    top = await plugins(["b0"], "../top", "example.com/top")
    os.mknod(os.path.join(folder, "file"))
    await kubelet.start()
    assert sorted(os.listdir(folder)) == ["file", "kubelet.sock", "sub"]
    assert os.listdir(os.path.join(folder, "sub")) == ["first.sock"]
    assert (below.endpoint, top.endpoint) == ("sub/first.sock", "sub/../top.sock")
    await kubelet.stop()


async def test_a_socket_stays_behind_dead_when_the_kubelet_stops(folder):
    kubelet = StandInKubelet(folder)
    await kubelet.start()
    await kubelet.stop()
    assert os.path.exists(kubelet.socket)
    outcome = await register(folder, RESOURCE, "x.sock", timeout=1)
    assert outcome.startswith("UNAVAILABLE: ")


async def test_the_grace_period_is_five_minutes(folder, plugins):
    now = [0.0]
    async with StandInKubelet(folder, clock=lambda: now[0]) as kubelet:
        plugin = await plugins(["a0"])
        await plugin.register()
        await kubelet.registered(RESOURCE)
        await plugin.stop()
        await kubelet.disconnected(RESOURCE)
        now[0] = 300.0
        assert kubelet.capacity().capacity == {RESOURCE: 1}
        now[0] = 300.1
        assert kubelet.capacity().removed == [RESOURCE]
        # The removal is reported only once. Afterwards, the resource is unknown, also in the checkpoint.
        assert kubelet.capacity().removed == []
        assert kubelet.checkpoint().registered == {}


async def test_a_plugin_that_goes_during_allocate_rejects_the_pod(kubelet, plugins):
    old, new = await plugins(["a0"], "old"), await plugins(["a0"], "new")
    asked = asyncio.Event()

    async def hang(request, context):
        asked.set()
        await asyncio.sleep(60)

    new.Allocate = hang
    await new.stop()
    await new.start()
    await old.register()
    await kubelet.registered(RESOURCE)
    await new.register()
    await kubelet.registered(RESOURCE)
    pod = asyncio.ensure_future(kubelet.allocate_pod("pod", {"main": {RESOURCE: 1}}))
    await asked.wait()
    # The end of the other plugin closes the connection that waits for the answer.
    await old.stop()
    with pytest.raises(PodRejected, match="the client connection is closing"):
        await pod
    await kubelet.disconnected(RESOURCE)
    with pytest.raises(PodRejected, match="no healthy devices"):
        await kubelet.allocate_pod("late", {"main": {RESOURCE: 1}})
