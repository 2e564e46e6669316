"""Which containers hold devices by CDI names: from real files and sockets of kubelet and runtime."""

import base64
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kubelet_stand_in.cri_server import CriServer
from node_device_plugin.cli.main import main
from node_device_plugin.kubelet import queries
from node_device_plugin.kubelet.cdi_holders import CdiHolder, CdiHolders, cdi_holders
from node_device_plugin.kubelet.pod_resources import Claimed, PodResourcesClient
from node_device_plugin.support.channels import grpc, unix_server
from node_device_plugin.wire import cri_v1_pb2 as cri
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api
from node_device_plugin.wire import pod_resources_v1_pb2 as messages
from node_device_plugin.wire import pod_resources_v1_pb2_grpc as services

GPU = "vendor.com/gpu"
NAME = f"{GPU}=gpu0"
ANNOTATED = {"cdi.k8s.io/vendor_gpu": f"{NAME}, {GPU}=gpu1"}


class Kubelet(services.PodResourcesListerServicer):
    """Lists pods, each with its container ``main``: resources with device ids, and CDI names of claims."""

    def __init__(self) -> None:
        self.pods: dict[str, tuple[Mapping[str, Iterable[str]], Iterable[str]]] = {}

    async def List(self, request: object, context: grpc.aio.ServicerContext) -> messages.ListPodResourcesResponse:
        answer = messages.ListPodResourcesResponse()
        for name, (devices, claimed) in self.pods.items():
            container = answer.pod_resources.add(name=name, namespace="default").containers.add(name="main")
            for resource, ids in devices.items():
                container.devices.add(resource_name=resource, device_ids=ids)
            for cdi_name in claimed:
                claim = container.dynamic_resources.add(claim_name="claim").claim_resources.add(driver_name="vendor")
                claim.cdi_devices.add(name=cdi_name)
        return answer


class Node:
    """A node: its kubelet, which runs while ``is_up``, its checkpoint, and its container runtime."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kubelet = Kubelet()
        self.is_up = True
        self.checkpoint = root / "device-plugins" / "kubelet_internal_checkpoint"
        self.runtime = CriServer(str(root / "cri.sock"))
        for directory in ("device-plugins", "pod-resources"):
            (root / directory).mkdir()

    def given(self, uid: str, device: str, **answer: Any) -> None:
        """Add an Allocate answer to the checkpoint."""
        data = json.loads(self.checkpoint.read_text())["Data"] if self.checkpoint.exists() else None
        data = data or {"PodDeviceEntries": [], "RegisteredDevices": {}}
        content = api.ContainerAllocateResponse(**answer).SerializeToString()
        entry = {"PodUID": uid, "ContainerName": "main", "ResourceName": GPU, "DeviceIDs": {"-1": [device]}}
        data["PodDeviceEntries"].append({**entry, "AllocResp": base64.b64encode(content).decode()})
        self.checkpoint.write_text(json.dumps({"Data": data}))

    async def container(self, pod: str, **config: Any) -> "tuple[str, str]":
        """Run a container ``main`` of a pod; returns the ids of the sandbox and of the container."""
        labels = {f"io.kubernetes.pod.{key}": value for key, value in (("name", pod), ("uid", f"uid-{pod}"))}
        labels["io.kubernetes.pod.namespace"] = "default"
        of_pod = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name=pod, namespace="default"))
        sandbox = await self.runtime.runtime.run_pod_sandbox(of_pod)
        metadata = cri.ContainerMetadata(name="main")
        of_container = cri.ContainerConfig(metadata=metadata, labels=labels, **config)
        container = await self.runtime.runtime.create_container(sandbox, of_container, of_pod)
        await self.runtime.runtime.start_container(container)
        return sandbox, container

    async def ask(self) -> CdiHolders:
        arguments = (str(self.root), str(self.root / "device-plugins"), str(self.root / "cri.sock"))
        if not self.is_up:
            return await cdi_holders(*arguments)

        def add(server: grpc.aio.Server) -> None:
            services.add_PodResourcesListerServicer_to_server(self.kubelet, server)

        async with unix_server(str(self.root / "pod-resources" / "kubelet.sock"), add):
            return await cdi_holders(*arguments)


@pytest.fixture
async def node(short_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(queries, "_STARTING", 0.0)
    node = Node(short_path)
    async with node.runtime:
        yield node


def held(pod: str, *names: str, namespace: str = "default") -> CdiHolders:
    return CdiHolders((CdiHolder(namespace, pod, "main", names),), ())


async def test_nobody(node: Node) -> None:
    node.kubelet.pods = {"plain": ({GPU: ["d0"]}, ())}
    node.given("uid-plain", "d0", envs={"GPU": "0"})
    await node.container("plain")
    assert await node.ask() == CdiHolders((), ())


@pytest.mark.parametrize("answer", [{"cdi_devices": [api.CDIDevice(name=NAME)]}, {"annotations": ANNOTATED}])
async def test_a_device_of_any_plugin(node: Node, answer: "dict[str, Any]") -> None:
    node.kubelet.pods = {"app": ({GPU: ["d0"], "vendor.com/plain": ["p0"]}, ())}
    node.given("uid-app", "d0", **answer)
    # Of a pod that has ended, and of a container without CDI.
    node.given("uid-old", "d9", cdi_devices=[api.CDIDevice(name=f"{GPU}=old")])
    names = (NAME, f"{GPU}=gpu1") if "annotations" in answer else (NAME,)
    assert (await node.ask()).held == held("app", *names).held


async def test_another_resource_may_have_the_same_device_id(node: Node) -> None:
    node.kubelet.pods = {"app": ({GPU: ["d0"]}, ()), "other": ({"vendor.com/other": ["d0"]}, ())}
    node.given("uid-app", "d0", cdi_devices=[api.CDIDevice(name=NAME)])
    assert (await node.ask()).held == held("app", NAME).held


async def test_the_kubelet_lists_what_containers_claim(node: Node) -> None:
    """By driver, pool and device; cdi_devices of a claim may be those of several devices."""
    container = messages.ContainerResources(name="main")
    claim = container.dynamic_resources.add(claim_name="c", claim_namespace="ns")
    claim.claim_resources.add(driver_name="d", pool_name="w/p", device_name="c0")
    claim.claim_resources.add(driver_name="other", pool_name="w", device_name="gpu-0")
    pod = messages.PodResources(name="app", namespace="ns", containers=[container])

    class Lister(services.PodResourcesListerServicer):
        async def List(self, request: object, context: object) -> messages.ListPodResourcesResponse:
            return messages.ListPodResourcesResponse(pod_resources=[pod])

    path = str(node.root / "kubelet.sock")

    def add(server: grpc.aio.Server) -> None:
        services.add_PodResourcesListerServicer_to_server(Lister(), server)

    async with unix_server(path, add), PodResourcesClient(path) as client:
        assert (await client.pods()).claims == (
            Claimed("ns", "app", "main", "ns/c", "d", "w/p", "c0"),
            Claimed("ns", "app", "main", "ns/c", "other", "w", "gpu-0"),
        )


async def test_a_claimed_device(node: Node) -> None:
    node.kubelet.pods = {"app": ({}, (NAME,)), "plain": ({}, ())}
    assert await node.ask() == held("app", NAME)


@pytest.mark.parametrize("config", [{"CDI_devices": [cri.CDIDevice(name=NAME)]}, {"annotations": ANNOTATED}])
@pytest.mark.parametrize("is_crio", [False, True])
async def test_a_container_of_the_runtime(node: Node, config: "dict[str, Any]", is_crio: bool) -> None:
    """Also one that no kubelet started. CRI-O tells only annotations."""
    if is_crio:
        node.runtime.name = "cri-o"
    await node.container("app", **config)
    names = (NAME, f"{GPU}=gpu1") if "annotations" in config else (NAME,)
    assert await node.ask() == (held("app", *names) if not is_crio or "annotations" in config else CdiHolders((), ()))


@pytest.mark.parametrize(
    ("is_ready", "is_listed", "is_up", "counts"),
    [
        # A container that crashed, and one after a reboot.
        (True, False, True, True),
        (False, True, True, True),
        # The container of a pod that has ended. Without a kubelet nobody knows.
        (False, False, True, False),
        (False, False, False, True),
    ],
)
async def test_an_ended_container_counts_while_it_may_start_again(
    node: Node, is_ready: bool, is_listed: bool, is_up: bool, counts: bool
) -> None:
    sandbox, container = await node.container("app", CDI_devices=[cri.CDIDevice(name=NAME)])
    node.runtime.runtime.exit(container, 1)
    if not is_ready:
        await node.runtime.runtime.stop_pod_sandbox(sandbox)
    node.kubelet.pods = {"app": ({}, ())} if is_listed else {}
    node.is_up = is_up
    assert await node.ask() == (held("app", NAME) if counts else CdiHolders((), ()))


async def test_without_a_kubelet_the_checkpoint_counts(node: Node) -> None:
    node.is_up = False
    node.given("uid-app", "d0", cdi_devices=[api.CDIDevice(name=NAME)])
    assert await node.ask() == held("uid-app", NAME, namespace="")
    await node.container("app")
    assert await node.ask() == held("app", NAME)


async def test_a_kubelet_that_has_just_started_may_not_know_its_pods(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "_STARTING", 60.0)
    node.given("uid-app", "d0", cdi_devices=[api.CDIDevice(name=NAME)])
    assert await node.ask() == held("uid-app", NAME, namespace="")


async def test_a_runtime_that_does_not_answer_is_unknown(node: Node) -> None:
    await node.runtime._server.stop(None)
    answer = await node.ask()
    assert answer.held == ()
    (reason,) = answer.unknown
    assert f"the container runtime at {node.root}/cri.sock could not" in reason
    assert "check that the runtime runs" in reason


@pytest.mark.parametrize("content", ["", "{", '{"Data": 1}', '{"Data": {"RegisteredDevices": {}}}'])
async def test_a_checkpoint_that_is_damaged_is_unknown(node: Node, content: str) -> None:
    node.checkpoint.write_text(content)
    (reason,) = (await node.ask()).unknown
    assert f"{node.checkpoint} is not a device checkpoint in a known format" in reason


async def test_a_checkpoint_that_cannot_be_read_is_unknown(node: Node) -> None:
    node.checkpoint.mkdir()
    (reason,) = (await node.ask()).unknown
    assert reason == f"{node.checkpoint} cannot be read: is not a regular file"


async def test_an_answer_that_cannot_be_read_is_unknown(node: Node) -> None:
    node.kubelet.pods = {"app": ({GPU: ["d0"]}, ())}
    node.given("uid-app", "d0")
    data = json.loads(node.checkpoint.read_text())
    data["Data"]["PodDeviceEntries"][0]["AllocResp"] = base64.b64encode(b"\xff").decode()
    node.checkpoint.write_text(json.dumps(data))
    (reason,) = (await node.ask()).unknown
    assert reason == "the kubelet's checkpoint has an unreadable answer for vendor.com/gpu of pod default/app"


@pytest.mark.parametrize(("name", "is_unknown"), [("containerd", False), ("cri-o", True)])
async def test_a_device_that_the_checkpoint_lacks(node: Node, name: str, is_unknown: bool) -> None:
    """As after the usual advice to remove the checkpoint. containerd tells what the container was created with."""
    node.runtime.name = name
    node.kubelet.pods = {"app": ({GPU: ["d0"]}, ())}
    await node.container("app")
    answer = await node.ask()
    assert bool(answer.unknown) is is_unknown
    assert all("what default/app was given for vendor.com/gpu (d0)" in reason for reason in answer.unknown)


async def test_a_container_that_ends_meanwhile(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    _sandbox, container = await node.container("app", CDI_devices=[cri.CDIDevice(name=NAME)])
    listed = await node.runtime.runtime.containers()
    await node.runtime.runtime.remove_container(container)

    async def list_containers(request: object, context: object) -> Any:
        return cri.ListContainersResponse(containers=listed)

    monkeypatch.setattr(node.runtime, "ListContainers", list_containers)
    assert await node.ask() == CdiHolders((), ())


def test_the_command_tells_what_is_unknown(short_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--kubelet-root", str(short_path), "--device-plugin-dir", str(short_path)]
    command = ["holders", "--by-cdi", *arguments, "--socket", str(short_path / "missing.sock")]
    assert main(command) == 1
    assert "there may be more holders: the container runtime at" in capsys.readouterr().err
    assert main([*command, "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["held"], len(told["unknown"])) == ([], 1)
