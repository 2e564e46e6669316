"""Tests the stand-in through the interface for plugin tests."""

import asyncio
import gc
import os

import grpc
import pytest

from kubelet_stand_in import PodRejected, StandInKubelet
from node_device_plugin.kubelet.pod_resources import Holder, PodResourcesClient, PodResourcesError
from node_device_plugin.runtime.errors import CriError
from node_device_plugin.wire import cri_v1_pb2 as cri
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api
from node_device_plugin.wire import pod_resources_v1_pb2 as pod_resources
from node_device_plugin.wire import pod_resources_v1_pb2_grpc as pod_resources_grpc

RESOURCE = "example.com/serial"


async def test_a_pod_gets_what_the_plugin_answers(kubelet, plugins):
    def answer(ids):
        return api.ContainerAllocateResponse(
            envs={"DEVICES": ",".join(ids)},
            mounts=[api.Mount(container_path="/in", host_path="/out", read_only=True)],
            devices=[api.DeviceSpec(container_path="/dev/in", host_path="/dev/out", permissions="r")],
            annotations={"example.com/key": "value"},
            cdi_devices=[api.CDIDevice(name="example.com/serial=" + device) for device in ids],
        )

    plugin = await plugins(["a1", "a0"], answer=answer)
    await plugin.register()
    assert await kubelet.registered(RESOURCE) == {"a0": "Healthy", "a1": "Healthy"}
    pod = await kubelet.allocate_pod("pod", {"main": {RESOURCE: 2}, "other": {}})
    config = pod.containers["main"]
    assert [(v.key, v.value) for v in config.envs] == [("DEVICES", b"a0,a1")]
    assert list(config.mounts) == [cri.Mount(container_path="/in", host_path="/out", readonly=True)]
    assert list(config.devices) == [cri.Device(container_path="/dev/in", host_path="/dev/out", permissions="r")]
    assert config.annotations["example.com/key"] == "value"
    assert [device.name for device in config.CDI_devices] == ["example.com/serial=a0", "example.com/serial=a1"]
    assert config.labels["io.kubernetes.pod.name"] == "pod-node"
    assert config.labels["io.kubernetes.container.name"] == "main"
    assert not pod.containers["other"].envs
    async with PodResourcesClient(kubelet.pod_resources_socket) as client:
        assert await client.holders() == [Holder("default", "pod-node", "main", RESOURCE, ("a0", "a1"))]
        assert await client.allocatable() == {RESOURCE: ("a0", "a1")}


async def test_a_rejected_pod_says_why(kubelet, plugins):
    plugin = await plugins(["a0"])
    await plugin.register()
    await kubelet.registered(RESOURCE)
    with pytest.raises(PodRejected) as rejected:
        await kubelet.allocate_pod("pod", {"main": {RESOURCE: 2}})
    assert rejected.value.reason == "UnexpectedAdmissionError"
    assert "Requested: 2, Available: 1" in rejected.value.message


async def test_a_removed_pod_frees_its_devices(kubelet, plugins):
    plugin = await plugins(["a0"])
    await plugin.register()
    await kubelet.registered(RESOURCE)
    pod = await kubelet.allocate_pod("first", {"main": {RESOURCE: 1}})
    await kubelet.remove_pod(pod.uid)
    async with PodResourcesClient(kubelet.pod_resources_socket) as client:
        assert await client.holders() == []
    await kubelet.allocate_pod("second", {"main": {RESOURCE: 1}})


async def test_capacity_is_what_is_listed_and_allocatable_what_is_healthy(kubelet, plugins):
    plugin = await plugins(devices={"a0": "Healthy", "a1": "Unhealthy"})
    await plugin.register()
    assert await kubelet.registered(RESOURCE) == {"a0": "Healthy", "a1": "Unhealthy"}
    assert kubelet.capacity() == ({RESOURCE: 2}, {RESOURCE: 1}, [])


async def test_numa_nodes_go_through(kubelet, plugins):
    plugin = await plugins(["a0"])

    async def list_and_watch(request, context):
        topology = api.TopologyInfo(nodes=[api.NUMANode(ID=0), api.NUMANode(ID=1)])
        yield api.ListAndWatchResponse(devices=[api.Device(ID="a0", health="Healthy", topology=topology)])
        await asyncio.sleep(60)

    await plugin.stop()
    plugin.ListAndWatch = list_and_watch
    await plugin.start()
    await plugin.register()
    await kubelet.registered(RESOURCE)
    pod = await kubelet.allocate_pod("pod", {"main": {RESOURCE: 1}})
    async with PodResourcesClient(kubelet.pod_resources_socket) as client:
        assert await client.allocatable() == {RESOURCE: ("a0",)}
        assert [holder.device_ids for holder in await client.holders()] == [("a0",)]
        request = pod_resources.GetPodResourcesRequest(pod_name=pod.name, pod_namespace="default")
        answer = await pod_resources_grpc.PodResourcesListerStub(client._channel).Get(request)
    nodes = [node.ID for devices in answer.pod_resources.containers[0].devices for node in devices.topology.nodes]
    assert nodes == [0, 1]
    [entry] = kubelet.checkpoint().pod_devices
    assert entry.device_ids == ("a0",)


async def test_pod_resources_of_a_kubelet_that_is_not_there(kubelet):
    socket = kubelet.pod_resources_socket
    await kubelet.stop()
    async with PodResourcesClient(socket) as client:
        with pytest.raises(PodResourcesError, match="could not list pods: UNAVAILABLE") as error:
            await client.holders()
    assert socket in str(error.value)


async def test_waiting_for_a_resource_that_does_not_come_says_so(kubelet):
    with pytest.raises(AssertionError, match=r"no plugin for example.com/serial has registered"):
        await kubelet.registered(RESOURCE, timeout=0.05)


async def test_a_container_restarts_and_the_answer_is_replayed(kubelet, plugins):
    plugin = await plugins(["a0"], answer=lambda ids: api.ContainerAllocateResponse(envs={"A": ids[0]}))
    await plugin.register()
    await kubelet.registered(RESOURCE)
    await kubelet.allocate_pod("pod", {"main": {RESOURCE: 1}})
    [(_, status)] = kubelet.pods.pods()
    await plugin.stop()
    kubelet.runtime.exit(status.containers["main"].id, 1)
    await kubelet.until(lambda: status.containers["main"].restart_count == 1)
    config = kubelet.container_configs(status)["main"]
    assert config.envs[0].value == b"a0"
    assert (config.metadata.attempt, config.log_path) == (1, "main/1.log")
    assert len([call for call in plugin.calls if call["call"] == "Allocate"]) == 1


async def test_a_broken_sandbox_is_made_anew_with_the_same_devices(kubelet, plugins):
    plugin = await plugins(["a0"], answer=lambda ids: api.ContainerAllocateResponse(envs={"A": ids[0]}))
    await plugin.register()
    await kubelet.registered(RESOURCE)
    await kubelet.allocate_pod("pod", {"main": {RESOURCE: 1}})
    [(_, status)] = kubelet.pods.pods()
    [sandbox] = await kubelet.runtime.pod_sandboxes()
    await kubelet.runtime.stop_pod_sandbox(sandbox.id)
    await kubelet.until(lambda: status.containers["main"].restart_count == 1)
    [sandbox] = await kubelet.runtime.pod_sandboxes()
    assert sandbox.metadata.attempt == 1
    assert kubelet.container_configs(status)["main"].envs[0].value == b"a0"


async def test_the_kubelet_kills_what_it_does_not_know(kubelet):
    await kubelet.runtime.run_pod_sandbox(cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="raw", uid="1")))
    pod = await kubelet.allocate_pod("known", {"main": {}})
    await kubelet.pods.remove_unknown_pods()
    [sandbox] = await kubelet.runtime.pod_sandboxes()
    assert sandbox.metadata.uid == pod.uid


def open_files() -> int:
    """The number of open files of this process, without objects that wait for the garbage collector."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


async def test_150_lives_leave_nothing_behind(folder, plugins):
    before = open_files()
    kubelet = StandInKubelet(folder)
    plugin = await plugins(["a0"])
    await kubelet.start()
    for _ in range(150):
        await kubelet.restart()
        assert await plugin.register() == "ok"
        await kubelet.registered(RESOURCE)
    # A leak of one file per restart would add 150 files. gRPC closes its own files a little later, in another thread.
    await kubelet.until(lambda: open_files() < before + 75, 30, "150 lives left 75 files open, or more")
    assert len(asyncio.all_tasks()) < 20
    await kubelet.stop()


async def test_a_runtime_that_fails_while_a_pod_ends_leaves_no_pod_behind(kubelet, monkeypatch, caplog):
    pod = await kubelet.allocate_pod("pod", {"main": {}})

    async def fail(sandbox):
        raise CriError("/run/x.sock", "stop sandbox", grpc.StatusCode.UNAVAILABLE, "gone")

    with monkeypatch.context() as patched:
        patched.setattr(kubelet.runtime, "stop_pod_sandbox", fail)
        await kubelet.remove_pod(pod.uid)
        await kubelet.pods.remove_unknown_pods()
    assert "Failed killing pod" in caplog.text
    assert kubelet.pods.active() == []
    assert len(await kubelet.runtime.pod_sandboxes()) == 1
    await kubelet.pods.remove_unknown_pods()
    assert await kubelet.runtime.pod_sandboxes() == []


async def test_a_runtime_that_fails_while_a_pod_begins_is_asked_again(kubelet, monkeypatch):
    run = kubelet.runtime.run_pod_sandbox
    failures = [1, 2]

    async def fail_twice(config):
        if failures:
            failures.pop()
            raise CriError("/run/x.sock", "start a sandbox", grpc.StatusCode.UNKNOWN, "no luck")
        return await run(config)

    monkeypatch.setattr(kubelet.runtime, "run_pod_sandbox", fail_twice)
    assert (await kubelet.allocate_pod("pod", {"main": {}})).containers["main"]
