"""The CRI client: what it makes of a runtime's answers, which are as containerd 1.7.24, 2.1.9 and 2.4.2 gave them."""

import asyncio
import json
from typing import Any

import pytest

from kubelet_stand_in import StandInKubelet
from kubelet_stand_in.cri_client import KubeletCriClient
from kubelet_stand_in.cri_server import CriServer
from node_device_plugin.cli.main import main
from node_device_plugin.runtime import queries as runtime_queries
from node_device_plugin.runtime.client import CriClient
from node_device_plugin.runtime.errors import CriError
from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import cri_v1_pb2 as cri

CONTAINERD_1_7 = {
    "enableCDI": False,
    "cdiSpecDirs": ["/etc/cdi", "/var/run/cdi"],
    "sandboxImage": "registry.k8s.io/pause:3.8",
}
CONTAINERD_2_1 = {"enableCDI": True, "cdiSpecDirs": ["/etc/cdi"]}
# As 2.4.2 gave it, shortened: it has no setting that turns CDI off, and its file had enable_cdi = false.
CONTAINERD_2_4 = {"cdiSpecDirs": ["/etc/cdi", "/var/run/cdi"], "cni": {"binDirs": ["/opt/cni/bin"]}}
# As 1.36.3 gave it, shortened.
CRIO_1_36 = {"crio": {"CDISpecDirs": ["/opt/cdi"], "LogLevel": "info"}, "sandboxImage": "registry.k8s.io/pause:3.10.1"}
CRIO_1_32 = {"sandboxImage": "registry.k8s.io/pause:3.10"}
CONTAINERD_1_6 = {"sandboxImage": "registry.k8s.io/pause:3.6"}


@pytest.fixture
def socket(short_path):
    return str(short_path / "containerd.sock")


async def test_version_over_the_kubelets_form_of_the_endpoint(socket):
    async with CriServer(socket, version="1.7.24~ds1"), CriClient("unix:" + socket) as client:
        assert await client.version() == ("containerd", "1.7.24~ds1")


@pytest.mark.parametrize(
    ("config", "cdi_enabled", "cdi_spec_dirs", "cdi_always_on", "sandbox_image"),
    [
        (CONTAINERD_1_7, False, ["/etc/cdi", "/var/run/cdi"], False, "registry.k8s.io/pause:3.8"),
        (CONTAINERD_2_1, True, ["/etc/cdi"], False, None),
        (CONTAINERD_2_4, True, ["/etc/cdi", "/var/run/cdi"], True, None),
        # Go prints a list that was never made as null.
        ({"cdiSpecDirs": None}, True, [], True, None),
        ({"enableCDI": True, "cdiSpecDirs": None}, True, [], False, None),
        ({"cdiSpecDirs": "x"}, None, None, False, None),
        ({"enableCDI": "x", "cdiSpecDirs": []}, None, [], False, None),
        (CONTAINERD_1_6, None, None, False, "registry.k8s.io/pause:3.6"),
        (CRIO_1_36, True, ["/opt/cdi"], True, "registry.k8s.io/pause:3.10.1"),
        ({"crio": {"CDISpecDirs": None}}, True, [], True, None),
        (CRIO_1_32, None, None, False, "registry.k8s.io/pause:3.10"),
        ({"crio": "x"}, None, None, False, None),
        ("no json", None, None, False, None),
        ("[]", None, None, False, None),
        (None, None, None, False, None),
    ],
)
async def test_status(socket, config, cdi_enabled, cdi_spec_dirs, cdi_always_on, sandbox_image):
    images = [cri.Image(id=sandbox_image, repo_tags=[sandbox_image])] if sandbox_image else []
    async with CriServer(socket, config=config, images=images):
        status = await runtime_queries.runtime(socket)
    assert status["cdi"] == {"enabled": cdi_enabled, "spec_dirs": cdi_spec_dirs, "always_on": cdi_always_on}
    assert status["sandbox_image"] == sandbox_image
    assert status["conditions"] == {"RuntimeReady": True, "NetworkReady": False}


@pytest.mark.parametrize(
    ("name", "config", "cdi", "said"),
    [
        ("containerd", CONTAINERD_1_7, (False, False), "off, spec directories /etc/cdi, /var/run/cdi"),
        ("containerd", CONTAINERD_2_1, (True, False), "on, spec directories /etc/cdi"),
        ("containerd", CONTAINERD_2_4, (True, True), "always on, spec directories /etc/cdi, /var/run/cdi"),
        ("containerd", CONTAINERD_1_6, (None, False), "not reported by this runtime, spec directories unknown"),
        # It tells nothing of CDI, and cannot turn it off.
        ("cri-o", CRIO_1_32, (True, True), "always on, spec directories unknown"),
    ],
)
async def test_command_runtime_tells_whether_cdi_is_on(socket, capsys, name, config, cdi, said):
    async with CriServer(socket, version="1.2.3", config=config, name=name):
        told = (await runtime_queries.runtime(socket))["cdi"]
        assert (told["enabled"], told["always_on"]) == cdi
        assert await asyncio.to_thread(main, ["runtime", "--socket", socket]) == 0
    assert capsys.readouterr().out == "%s 1.2.3\nCDI %s\n" % (name, said)


@pytest.mark.parametrize(
    ("config", "images", "expected"),
    [
        (CONTAINERD_1_7, [("registry.k8s.io/pause:3.8", False)], "registry.k8s.io/pause:3.8"),
        (CONTAINERD_1_7, [("busybox:1", False)], None),
        (CONTAINERD_2_1, [("registry.k8s.io/pause:3.10", True), ("busybox:1", False)], "registry.k8s.io/pause:3.10"),
        (CONTAINERD_2_1, [("agent:1", True), ("registry.k8s.io/pause:3.10", True)], "registry.k8s.io/pause:3.10"),
        (CONTAINERD_2_1, [("localhost/sandbox:1", True)], "localhost/sandbox:1"),
        (CONTAINERD_2_1, [("registry.k8s.io/pause:3.10", False)], None),
        (CONTAINERD_2_1, [], None),
    ],
)
async def test_sandbox_image(socket, config, images, expected):
    known = [cri.Image(id=tag, repo_tags=[tag], pinned=pinned) for tag, pinned in images]
    async with CriServer(socket, config=config, images=known), CriClient(socket) as client:
        assert await client.sandbox_image() == expected
        assert len(await client.images()) == len(known)


async def test_a_pod_from_its_beginning_to_its_end(socket):
    config = cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(name="pod", namespace="default", uid="1"), labels={"a": "b"}
    )
    container = cri.ContainerConfig(metadata=cri.ContainerMetadata(name="main"), labels={"a": "b"})
    async with CriServer(socket), KubeletCriClient(socket) as client:
        sandbox = await client.run_pod_sandbox(config)
        identity = await client.create_container(sandbox, container, config)
        assert await client.container_pid(identity) is None
        await client.start_container(identity)
        assert await client.container_pid(identity) == 4711
        assert [c.id for c in await client.containers({"a": "b"})] == [identity]
        assert await client.containers({"a": "c"}) == []
        assert [s.id for s in await client.pod_sandboxes({"a": "b"})] == [sandbox]
        await client.stop_container(identity, 1)
        assert (await client.container_status(identity)).exit_code == 137
        await client.remove_container(identity)
        await client.stop_pod_sandbox(sandbox)
        await client.remove_pod_sandbox(sandbox)
        assert await client.pod_sandboxes() == []


@pytest.mark.parametrize(
    ("info", "pid"),
    [
        ({"pid": 1}, 1),
        # As containerd tells it of a container that does not run.
        ({"pid": 0}, None),
        # No id: to kill(2) it would mean every process.
        ({"pid": -1}, None),
        ({"pid": "1"}, None),
        ({"pid": None}, None),
        ({}, None),
    ],
)
async def test_a_process_id_is_a_number_above_0(socket, info, pid):
    async with TellingServer(socket) as server, CriClient(socket) as client:
        server.tells = info
        assert await client.container_pid("any") == pid


class TellingServer(CriServer):
    """A runtime that tells the same of every container."""

    tells: Any = None

    async def ContainerStatus(self, request, context):
        return cri.ContainerStatusResponse(info={"info": json.dumps(self.tells)})


async def test_how_containers_ended_is_told(socket):
    config = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="pod", namespace="default"))
    async with CriServer(socket) as server:
        sandbox = await server.runtime.run_pod_sandbox(config)
        names = {}
        for name in ("runs", "ends", "another"):
            container = cri.ContainerConfig(metadata=cri.ContainerMetadata(name=name))
            names[name] = await server.runtime.create_container(sandbox, container, config)
            await server.runtime.start_container(names[name])
        for name in ("ends", "another"):
            await server.runtime.stop_container(names[name], 0)
        asked = [names["ends"], names["runs"], "unknown"]
        (ended,) = await runtime_queries.ended_containers(socket, asked)
        assert (ended["id"], ended["exit_code"]) == (names["ends"], 137)
        assert set(ended) == {"id", "exit_code", "reason", "finished_at"}


@pytest.mark.parametrize(
    ("cgroup", "unit"),
    [
        ("0::/system.slice/crio.service\n", "crio.service"),
        ("0::/kubepods.slice/kubepods-pod1.slice/crio-conmon-0123.scope\n", "crio-conmon-0123.scope"),
        # A node in a container, on a machine that has services, too.
        ("9:name=systemd:/a.service/b.slice/c.service\n0::/\n", "c.service"),
        ("0::/\n", None),
    ],
)
def test_what_watches_a_process_is_told_by_its_unit(tmp_path, cgroup, unit):
    for pid in ("5", "7"):
        (tmp_path / pid).mkdir()
    (tmp_path / "7" / "stat").write_text("7 (of) 1 all) S 5 7 7 0")
    (tmp_path / "5" / "cgroup").write_text(cgroup)
    assert runtime_queries._unit_of_parent(7, str(tmp_path)) == unit
    assert runtime_queries._unit_of_parent(8, str(tmp_path)) is None


async def test_running_containers_are_told_by_process(socket, monkeypatch):
    monkeypatch.setattr(runtime_queries, "_unit_of_parent", "unit of {}".format)
    config = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="pod", namespace="default"))
    async with EndingContainers(socket) as server:
        sandbox = await server.runtime.run_pod_sandbox(config)
        names = {}
        for name in ("runs", "never-started", "ends"):
            container = cri.ContainerConfig(metadata=cri.ContainerMetadata(name=name))
            names[name] = await server.runtime.create_container(sandbox, container, config)
        await server.runtime.start_container(names["runs"])
        await server.runtime.start_container(names["ends"])
        server.ends = names["ends"]
        assert await runtime_queries.running_containers(socket) == [
            {"id": names["runs"], "pid": 4711, "unit": "unit of 4711"}
        ]


class EndingContainers(CriServer):
    """A runtime in which a container ends and is removed right after it was listed."""

    async def ListContainers(self, request, context):
        listed = await super().ListContainers(request, context)
        await self.runtime.remove_container(self.ends)
        return listed


async def test_a_runtime_that_is_not_there(socket):
    async with CriClient(socket) as client:
        with pytest.raises(CriError) as error:
            await client.version()
    assert str(error.value).startswith(
        "the container runtime at %s could not report its version: UNAVAILABLE: " % socket
    )
    assert str(error.value).endswith("(check that the runtime runs, uses this socket, and lets this user open it)")


async def test_a_socket_that_speaks_no_cri(short_path):
    """As containerd's does with disabled_plugins = ["cri"]: gRPC, and nothing of this service."""
    async with StandInKubelet(str(short_path)) as kubelet, CriClient(kubelet.socket) as client:
        with pytest.raises(CriError, match=r"UNIMPLEMENTED: .*disabled_plugins"):
            await client.version()


async def test_a_runtimes_own_error_names_what_was_tried(socket):
    sandbox_config = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="pod", namespace="default"))
    config = cri.ContainerConfig(metadata=cri.ContainerMetadata(name="main"))
    async with CriServer(socket), CriClient(socket) as client:
        with pytest.raises(CriError) as error:
            await client.create_container("none", config, sandbox_config)
    assert error.value.attempted == "create container main of pod default/pod"
    assert error.value.code.name == "NOT_FOUND"
    assert error.value.details == "failed to find sandbox id 'none'"


async def test_a_container_that_is_gone_requested_nothing(socket):
    config = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="pod", namespace="default"))
    async with EndingContainers(socket) as server:
        sandbox = await server.runtime.run_pod_sandbox(config)
        for name in ("stays", "ends"):
            container = cri.ContainerConfig(metadata=cri.ContainerMetadata(name=name))
            server.ends = await server.runtime.create_container(sandbox, container, config)
        assert [each.container for each in await runtime_queries.requested_cdi(socket)] == ["stays"]


class FailingServer(CriServer):
    """A runtime that does not tell the status of a container."""

    async def ContainerStatus(self, request, context):
        await context.abort(grpc.StatusCode.INTERNAL, "broken")


async def test_a_runtime_that_fails_for_a_container_is_an_error(socket, capsys):
    config = cri.PodSandboxConfig(metadata=cri.PodSandboxMetadata(name="pod", namespace="default"))
    async with FailingServer(socket) as server:
        sandbox = await server.runtime.run_pod_sandbox(config)
        container = cri.ContainerConfig(metadata=cri.ContainerMetadata(name="main"))
        await server.runtime.start_container(await server.runtime.create_container(sandbox, container, config))
        for question in (runtime_queries.running_containers, runtime_queries.requested_cdi):
            with pytest.raises(CriError, match="INTERNAL: broken"):
                await question(socket)
        # As text, the command asks for no container.
        assert await asyncio.to_thread(main, ["runtime", "--socket", socket]) == 0
        assert await asyncio.to_thread(main, ["runtime", "--socket", socket, "-o", "json"]) == 1
