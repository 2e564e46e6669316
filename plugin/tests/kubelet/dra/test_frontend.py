"""The driver as the kubelet finds it: registration, health, slices, and what each resource's status says."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
import pytest

from node_device_plugin.cluster import kubeconfig
from node_device_plugin.daemon import main
from node_device_plugin.declaration import DeclarationError, Resource, names
from node_device_plugin.declaration.configuration_file import Source, load
from node_device_plugin.declaration.model import DraDriver
from node_device_plugin.devices.given import IN_DOUBT
from node_device_plugin.devices.holdings import HeldId, Holding
from node_device_plugin.kubelet.dra import connection, frontend, health, publisher, slices
from node_device_plugin.kubelet.plugin_watcher import socket_path
from node_device_plugin.status_api import client
from node_device_plugin.support.sockets import status_socket
from node_device_plugin.wire import dra_health_v1_pb2 as health_api
from node_device_plugin.wire import dra_health_v1alpha1_pb2_grpc as alpha_grpc
from node_device_plugin.wire import plugin_registration_v1_pb2 as registry

from ...daemon.test_frontends import Recorded
from .fake_api import FakeApi
from .node import CAMERA, DRIVER, NODE, Kubelet, Node, Plugin, asked, claim, resource, result, until

WATCH = health_api.NodeWatchResourcesRequest()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_LOOK", 0.02)


def published(cluster: FakeApi) -> dict[str, list[str]]:
    """The devices of each pool that pods can get."""
    pools: dict[str, list[str]] = {}
    for each in list(cluster.slices.values()):
        spec = each["spec"]
        pools.setdefault(spec["pool"]["name"], []).extend(
            device["name"] for device in spec.get("devices", []) if "taints" not in device
        )
    return pools


async def test_the_kubelet_registers_the_driver(node: Node, cluster: FakeApi) -> None:
    async with node.running(resource("null")) as plugin, Kubelet(node.socket) as kubelet:
        assert plugin.frontend.status(CAMERA) == (False, None, None, 0)
        refusal = registry.RegistrationStatus(plugin_registered=False, error="too old")
        await kubelet.registry.NotifyRegistrationStatus(refusal)
        why = "the kubelet refused the registration: too old"
        assert plugin.frontend.status(CAMERA) == (False, None, why, 0)
        info = await kubelet.register()
        assert info == registry.PluginInfo(
            type="DRAPlugin",
            name=DRIVER,
            endpoint=node.socket,
            supported_versions=["v1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"],
        )
        await until(lambda: plugin.frontend.status(CAMERA).is_registered)
        status = plugin.frontend.status(CAMERA)
        assert status.problem is None
        assert status.registered_seconds is not None
        assert status.registered_seconds < 5
        assert not plugin.frontend.status("example.com/unknown").is_registered
        await until(lambda: published(cluster) == {"w1/camera.example.com": ["null"]})
        # A kubelet that restarted, and now refuses.
        await kubelet.registry.NotifyRegistrationStatus(refusal)
        assert plugin.frontend.status(CAMERA) == (False, None, why, 0)
    assert os.listdir(node.folder / "plugins_registry") == []


async def test_a_kubelet_that_starts_again_gets_its_slices_back(node: Node, cluster: FakeApi) -> None:
    """It may have deleted them, and the connection of the watch may be dead."""
    cluster.is_mute = True
    async with node.running(resource("null")), Kubelet(node.socket) as kubelet:
        for _kubelet_start in range(3):
            await kubelet.register()
            await until(lambda: published(cluster) == {"w1/camera.example.com": ["null"]})
            cluster.delete()


async def test_the_last_resource_takes_its_slices_with_it(node: Node, cluster: FakeApi) -> None:
    async with node.running(resource("null")) as plugin, Kubelet(node.socket) as kubelet:
        await kubelet.register()
        await until(lambda: published(cluster) == {"w1/camera.example.com": ["null"]})
        await plugin.apply()
        await until(lambda: cluster.slices == {})


async def test_a_socket_that_somebody_removed_is_made_anew_and_registered_again(node: Node, cluster: FakeApi) -> None:
    async with node.running(resource("null")) as plugin:
        for _ in range(2):
            async with Kubelet(node.socket) as kubelet:
                await kubelet.register()
                await until(lambda: plugin.frontend.status(CAMERA).is_registered)
            os.unlink(node.socket)
            await until(lambda: not plugin.frontend.status(CAMERA).is_registered)
            await until(lambda: os.path.exists(node.socket))
            # The kubelet has not found the new socket yet.
            await asyncio.sleep(0.1)
            assert not plugin.frontend.status(CAMERA).is_registered


async def test_the_driver_waits_until_its_directory_can_be_written(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FIRST_RETRY", 0.02)
    (node.folder / "plugins_registry").touch()
    async with contextlib.AsyncExitStack() as stack:
        starting = asyncio.ensure_future(stack.enter_async_context(node.running(resource("null"))))
        await asyncio.sleep(0.3)
        assert not starting.done()
        os.unlink(node.folder / "plugins_registry")
        plugin = await asyncio.wait_for(starting, 10)
        assert stat.S_ISSOCK(os.stat(node.socket).st_mode)
        assert plugin.frontend.status(CAMERA).problem is None


def test_the_socket_s_path_fits_for_every_driver() -> None:
    root = "/" + "d" * (names.MAX_KUBELET_ROOT_DIR - 1)
    for instance in ("", "123456"):
        assert len(socket_path(root, "d" * 63, instance)) <= 107


async def test_instances_that_overlap_have_sockets_of_their_own_and_one_publishes(node: Node, cluster: FakeApi) -> None:
    node.overlaps = True
    async with contextlib.AsyncExitStack() as stack:
        old = await stack.enter_async_context(node.running(resource("null")))
        node.leads = False
        new = await stack.enter_async_context(node.running(resource("null", "zero")))
        sockets = [node.folder / "plugins_registry" / each for each in os.listdir(node.folder / "plugins_registry")]
        assert len(sockets) == 2
        for each in sockets:
            async with Kubelet(str(each)) as kubelet:
                await kubelet.register()
        await until(lambda: published(cluster) == {"w1/camera.example.com": ["null"]})
        await asyncio.sleep(0.3)
        assert [method for method, _name in cluster.writes] == ["POST"]
        await old.end()
        await new.resources.take_over()
        await until(lambda: published(cluster) == {"w1/camera.example.com": ["null", "zero"]})


async def test_slices_stay_over_a_restart_and_follow_a_reload(node: Node, cluster: FakeApi) -> None:
    other = resource("zero", name="example.com/other")
    pools = {"w1/camera.example.com": ["null"], "w1/other.example.com": ["zero"]}
    for _ in range(2):
        async with node.running(resource("null"), other) as plugin, Kubelet(node.socket) as kubelet:
            await kubelet.register()
            await until(lambda: published(cluster) == pools)
            await asyncio.sleep(0.3)
            plugin.set_reasons(null="it fell off")
            await until(lambda: published(cluster)["w1/camera.example.com"] == [])
            plugin.set_reasons(null=None)
            await until(lambda: published(cluster) == pools)
        written, cluster.writes = cluster.writes, []
    assert [method for method, _name in written] == ["PUT", "PUT"]
    async with node.running(resource("null"), other) as plugin, Kubelet(node.socket) as kubelet:
        await kubelet.register()
        await plugin.apply(other)
        await until(lambda: published(cluster) == {"w1/other.example.com": ["zero"]})


async def test_the_kubelet_finds_the_driver_once_every_resource_is_offered(node: Node, cluster: FakeApi) -> None:
    """Otherwise, slices would go for a moment, and claims would be refused."""
    cameras = resource("null"), resource("zero", name="example.com/other")
    async with node.running(*cameras) as plugin:
        tables = plugin.resources.tables
    plugin = Plugin(node)
    try:
        await plugin.frontend.settle(node.configuration(*cameras))
        await plugin.frontend.offer(tables[0])
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(plugin.frontend.all_served(), 0.2)
        assert not os.path.exists(node.socket)
        await plugin.frontend.offer(tables[1])
        await asyncio.wait_for(plugin.frontend.all_served(), 10)
        async with Kubelet(node.socket) as kubelet:
            await kubelet.register()
            await until(
                lambda: published(cluster) == {"w1/camera.example.com": ["null"], "w1/other.example.com": ["zero"]}
            )
    finally:
        await plugin.stop()


async def test_another_driver_name_takes_effect_at_once(node: Node, cluster: FakeApi) -> None:
    async with node.running(resource("null")) as plugin:
        configuration = node.configuration(resource("null"))
        await plugin.resources.apply(configuration._replace(dra=configuration.dra._replace(name="new.example.com")))
        await plugin.resources.all_served()
        (name,) = os.listdir(node.folder / "plugins_registry")
        async with Kubelet(str(node.folder / "plugins_registry" / name)) as kubelet:
            assert (await kubelet.register()).name == "new.example.com"


async def test_a_pod_has_the_name_of_its_node_and_a_service_account(
    node: Node, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does not need the node's kubeconfig, and without a resource it still removes the slices."""
    access = kubeconfig.read(node.configuration().dra.kubeconfig)
    monkeypatch.setenv("NODE_NAME", "w2")
    monkeypatch.setattr(publisher.in_pod, "access", lambda _environment: access)
    async with node.running(resource("null")) as plugin, Kubelet(node.socket) as kubelet:
        of_pod = node.configuration(resource("null"))._replace(dra=DraDriver(DRIVER, kubeconfig="/nonexistent"))
        await plugin.resources.apply(of_pod)
        await plugin.resources.all_served()
        await kubelet.register()
        await until(lambda: published(cluster) == {"w2/camera.example.com": ["null"]})
        await plugin.resources.apply(of_pod._replace(resources=()))
        await until(lambda: published(cluster) == {})


async def test_a_change_of_one_resource_builds_no_other_pool(
    node: Node, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []

    def pool_of(driver: DraDriver, of_resource: Resource, healthy: Any) -> Any:
        built.append(of_resource.name)
        return slices.pool_of(driver, of_resource, healthy)

    monkeypatch.setattr(frontend, "pool_of", pool_of)
    other = resource("zero", name="example.com/other")
    async with node.running(resource("null"), other) as plugin, Kubelet(node.socket) as kubelet:
        await kubelet.register()
        await until(lambda: len(published(cluster)) == 2)
        built.clear()
        plugin.set_reasons(null="broken")
        await until(lambda: published(cluster)["w1/camera.example.com"] == [])
        assert set(built) == {CAMERA}


async def test_a_driver_without_the_name_of_its_node_asks_for_nothing(node: Node, cluster: FakeApi) -> None:
    """Such as one that only releases claims. Without a name, the requests would be for other nodes' objects."""
    async with node.running(resource("null")) as plugin, Kubelet(node.socket) as kubelet:
        configuration = node.configuration(resource("null"))
        await until(lambda: cluster.watches)
        await plugin.resources.apply(configuration._replace(dra=configuration.dra._replace(node="")))
        await plugin.resources.all_served()
        cluster.requests.clear()
        await kubelet.register()
        await asyncio.sleep(0.3)
        assert cluster.requests == []


async def test_resources_without_the_name_of_the_node_are_refused(
    node: Node, cluster: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = node.folder / "config.yaml"
    config.write_text(
        f"{{cdi_spec_dirs: [], dynamic_cdi_dir: {node.folder}/cdi, kubelet_root_dir: {node.folder}, "
        f"kubelet_device_plugin_dir: {node.folder}/dp, "
        f"resources: [{{name: {CAMERA}, api: dra, devices: [{{id: 'null', nodes: [{{path: /dev/null}}]}}]}}]}}"
    )
    monkeypatch.delenv("NODE_NAME", raising=False)
    with pytest.raises(DeclarationError) as refused:
        await asyncio.wait_for(main.run(Source(str(config)), load(str(config))), 20)
    assert [str(each) for each in refused.value.problems] == [
        "dra.node: is missing: set the node's name in the cluster"
    ]
    assert cluster.requests == []


def shown(answer: health_api.NodeWatchResourcesResponse) -> dict[str, Any]:
    now = time.time()
    assert all(now - 10 < each.last_updated_time <= now for each in answer.devices)
    assert {each.device.pool_name for each in answer.devices} == {"w1/camera.example.com"}
    return {each.device.device_name: (each.health, each.message) for each in answer.devices}


@pytest.mark.parametrize("version", ["v1", "v1alpha1"])
async def test_health_is_told_completely_at_once_and_again(
    node: Node, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    async with node.running(resource("null", "zero")) as plugin, Kubelet(node.socket) as kubelet:
        stub = kubelet.health if version == "v1" else alpha_grpc.DRAResourceHealthStub(kubelet.channel)
        answers: AsyncIterator[health_api.NodeWatchResourcesResponse] = stub.NodeWatchResources(WATCH).__aiter__()
        healthy = health_api.HEALTHY, ""
        assert shown(await answers.__anext__()) == {"null": healthy, "zero": healthy}
        began = time.monotonic()
        plugin.set_reasons(zero="x" * 2000)
        assert shown(await answers.__anext__()) == {"null": healthy, "zero": (health_api.UNHEALTHY, "x" * 1024)}
        assert time.monotonic() - began < 5
        plugin.set_reasons(zero=None)
        monkeypatch.setattr(health, "_REPEAT", 0.2)
        for _ in range(3):
            assert shown(await answers.__anext__()) == {"null": healthy, "zero": healthy}
        # A second stream, as of a kubelet that restarted.
        second = kubelet.health.NodeWatchResources(WATCH).__aiter__()
        assert len(shown(await second.__anext__())) == 2
        await asyncio.wait_for(plugin.end(), 5)
        # Both end, so that a server can stop. A stream that has not read its end yet may find the socket closed.
        for stream in (answers, second):
            with contextlib.suppress(grpc.aio.AioRpcError):
                async for _answer in stream:
                    pass


async def test_each_message_of_health_fits_the_kubelet(node: Node) -> None:
    ids = [f"{number:05d}{'x' * 58}" for number in range(2200)]
    devices = [{"id": each, "cdi_devices": [f"vendor.com/dev={each}"]} for each in ids]
    async with node.running({"name": CAMERA, "devices": devices}) as plugin:
        plugin.set_reasons(**dict.fromkeys(ids, "\N{EURO SIGN}" * 2000))
        # Its limit is gRPC's default, 4 MiB.
        async with Kubelet(node.socket) as kubelet:
            answers = kubelet.health.NodeWatchResources(WATCH).__aiter__()
            told: dict[str, Any] = {}
            while len(told) < len(ids):
                told.update(shown(await asyncio.wait_for(answers.__anext__(), 10)))
    assert set(told.values()) == {(health_api.UNHEALTHY, "\N{EURO SIGN}" * 1024)}


async def test_a_device_that_a_pod_holds_through_the_device_plugin_is_refused(node: Node, cluster: FakeApi) -> None:
    cluster.claims["default/claim-u1"] = claim("u1", result("null"))
    by_plugin = Recorded("device_plugin")
    by_plugin.served.set()
    node.others = {"device_plugin": by_plugin}
    async with node.running() as plugin:
        await plugin.apply(resource("null"), api_of={CAMERA: "device_plugin"})
        by_plugin.holders = [Holding("default/pod", CAMERA, HeldId("null"), frozenset({"/dev/null"}))]
        await plugin.apply(resource("null"))
        async with Kubelet(node.socket) as kubelet:
            await kubelet.register()
            assert await kubelet.refused("u1") == (
                "claim default/claim-u1, request cam, device null of pool w1/camera.example.com "
                "(example.com/camera=null): held by another pod or claim as example.com/camera"
            )
            # The kubelet shows the health in the pods' status.
            answers = kubelet.health.NodeWatchResources(WATCH).__aiter__()
            (health,) = shown(await asyncio.wait_for(answers.__anext__(), 10)).values()
            assert health == (health_api.UNHEALTHY, "held by another pod or claim as example.com/camera")
            (table,) = plugin.resources.tables
            assert table.reason(table.resource.devices[0]) == "held by default/pod as example.com/camera"
            await until(lambda: published(cluster) == {"w1/camera.example.com": []})
            by_plugin.holders, by_plugin.agrees = [], True
            await plugin.resources.ask_for_holders()
            assert await kubelet.prepared("u1") == [[f"{CAMERA}=null"]]
            # And the other way round.
            await plugin.apply(resource("null"), api_of={CAMERA: "device_plugin"})
            (table,) = plugin.resources.tables
            reason = table.reason(table.resource.devices[0])
            assert reason == "held by claim default/claim-u1 as example.com/camera"
            assert reason != IN_DOUBT


def test_a_plugin_without_such_a_resource_loads_nothing_of_it() -> None:
    code = (
        "import sys\n"
        "from node_device_plugin.daemon import main\n"
        "print([name for name in sys.modules if name.startswith(('node_device_plugin.kubelet.dra.',"
        " 'node_device_plugin.cluster.', 'node_device_plugin.wire.dra'))])"
    )
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=path)
    assert done.stdout == "[]\n"


async def test_the_driver_comes_with_the_first_resource_and_for_prepared_claims(node: Node, cluster: FakeApi) -> None:
    cluster.claims["default/claim-u1"] = claim("u1", result("null"))
    config = node.folder / "config.yaml"

    def write(api: str, cdi: str = "cdi") -> None:
        config.write_text(
            f"{{cdi_spec_dirs: [], dynamic_cdi_dir: {node.folder}/{cdi}, kubelet_root_dir: {node.folder}, "
            f"kubelet_device_plugin_dir: {node.folder}/dp, "
            f"dra: {{driver: {DRIVER}, node: {NODE}, kubeconfig: {node.folder}/kubeconfig}}, "
            f"resources: [{{name: {CAMERA}, api: {api}, devices: [{{id: 'null', nodes: [{{path: /dev/null}}]}}]}}]}}"
        )

    @contextlib.asynccontextmanager
    async def running() -> AsyncIterator[None]:
        task = asyncio.create_task(main.run(Source(str(config)), load(str(config))))
        await until(lambda: os.path.exists(status_socket(str(node.folder / "dp"))))
        try:
            yield
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(task, 10)

    write("device_plugin")
    async with running():
        assert not os.path.exists(node.socket)
        write("dra")
        os.kill(os.getpid(), signal.SIGHUP)
        await until(lambda: os.path.exists(node.socket))
        async with Kubelet(node.socket) as kubelet:
            assert await kubelet.prepared("u1") == [[f"{CAMERA}=null"]]
        # Nobody would find the record there.
        write("dra", "other")
        answer = await client.ask(str(node.folder / "dp"), "POST", "/reload")
        assert "dynamic_cdi_dir: claims are prepared" in str(answer)
        assert not os.path.exists(node.folder / "other")
    # Only a driver can release the claim, although no resource is served through this API any more.
    write("device_plugin")
    async with running():
        await until(lambda: os.path.exists(node.socket))
        async with Kubelet(node.socket) as kubelet:
            assert await kubelet.unprepare(asked("u1")) == {"u1": ""}
    async with running():
        assert not os.path.exists(node.socket)
