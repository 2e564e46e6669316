"""The other way in: the kubelet finds our sockets in plugin_watcher."""

import asyncio
import contextlib
import os
import socket
import sys
from pathlib import Path

import pytest

from kubelet_stand_in import StandInKubelet
from node_device_plugin.declaration import DeclarationError, names, parse_configuration, parse_resources
from node_device_plugin.kubelet.device_plugin import plugin_watcher_registration
from node_device_plugin.kubelet.device_plugin.plugin_watcher_registration import PluginWatcherRegistration
from node_device_plugin.kubelet.plugin_watcher import PluginWatcher, remove_stale_sockets, socket_path
from node_device_plugin.support.cancel_safe import done_within
from node_device_plugin.support.channels import grpc, unix_server
from node_device_plugin.telemetry import metrics
from node_device_plugin.wire import plugin_registration_v1_pb2 as registry
from node_device_plugin.wire import plugin_registration_v1_pb2_grpc as registry_grpc

from ..serving import kept_registered

RESOURCES = parse_resources(
    [
        {"name": "example.com/dev", "devices": [{"id": "d0"}, {"id": "d1"}], "env": {"DEV_{index}": "{id}"}},
        {"name": "example.com/none"},
    ]
)
MINOR = (1, 36)
HEALTHY = {"d0": "Healthy", "d1": "Healthy"}


@pytest.fixture(autouse=True, params=[(1, 36), (1, 37)], ids=["1.36", "1.37"])
def minor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """The version of the kubelet, which looks every 50 ms: ten times as fast as a real one."""
    monkeypatch.setattr(plugin_watcher_registration, "_BACK", 0.25)
    monkeypatch.setattr(sys.modules[__name__], "MINOR", request.param)
    assert request.param == MINOR
    return MINOR


def plugin(root: Path) -> contextlib.AbstractAsyncContextManager[dict[str, PluginWatcherRegistration]]:
    return kept_registered(RESOURCES, lambda service: PluginWatcherRegistration(service, str(root)))


def kubelet_at(root: Path) -> StandInKubelet:
    return StandInKubelet(str(root / "dp"), registry_interval=0.05, minor=MINOR)


def sockets(root: Path) -> list[str]:
    return sorted(os.listdir(root / "plugins_registry"))


async def test_every_resource_is_found_and_allocates(short_path: Path) -> None:
    async with kubelet_at(short_path) as kubelet, plugin(short_path) as registrations:
        assert await kubelet.registered("example.com/dev") == HEALTHY
        assert await kubelet.registered("example.com/none") == {}
        assert all(registration.service.stream.is_open for registration in registrations.values())
        pod = await kubelet.allocate_pod("test", {"main": {"example.com/dev": 2}})
        assert {env.key: env.value for env in pod.containers["main"].envs} == {"DEV_0": b"d0", "DEV_1": b"d1"}
    assert sockets(short_path) == []


async def test_the_kubelet_comes_later_and_restarts(short_path: Path) -> None:
    async with plugin(short_path) as registrations:
        await asyncio.gather(*(each.serving.wait() for each in registrations.values()))
        async with kubelet_at(short_path) as kubelet:
            for _ in range(4):
                assert await kubelet.registered("example.com/dev") == HEALTHY
                assert await kubelet.registered("example.com/none") == {}
                await kubelet.restart()


async def test_a_kubelet_that_restarts_finds_the_socket_as_it_was(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made again at once, the socket would take the new kubelet's connection away."""
    monkeypatch.setattr(plugin_watcher_registration, "_BACK", 10)
    async with kubelet_at(short_path) as kubelet, plugin(short_path) as registrations:
        await kubelet.registered("example.com/dev")
        before = os.stat(registrations["example.com/dev"].socket)
        for _ in range(5):
            await kubelet.restart()
            await kubelet.registered("example.com/dev")
        after = os.stat(registrations["example.com/dev"].socket)
        assert (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns)


async def test_a_lost_stream_makes_the_socket_anew(short_path: Path) -> None:
    async with kubelet_at(short_path) as kubelet, plugin(short_path) as registrations:
        for _ in range(3):
            assert await kubelet.registered("example.com/dev") == HEALTHY
            stream = registrations["example.com/dev"].service.stream
            stream.end()
            await done_within(stream.wait_until(False), 3)
            await asyncio.wait_for(stream.wait_until(True), 10)
        assert len(sockets(short_path)) == len(RESOURCES)


async def test_who_registers_and_opens_no_stream_finds_another_socket_and_who_refuses_tries_again(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plugin_watcher_registration, "_LOOK", 0.02)
    monkeypatch.setattr(plugin_watcher_registration, "_STREAM_DEADLINE", 0.05)
    name = "example.com/dev"

    def counted() -> list[float]:
        return [metrics.REGISTRATIONS.value(name, what) for what in ("refused", "no_stream", "registered")]

    async with plugin(short_path) as registrations:
        await registrations[name].serving.wait()
        refused, no_stream, registered = counted()
        async with grpc.aio.insecure_channel("unix:" + registrations[name].socket) as channel:
            tell = registry_grpc.RegistrationStub(channel).NotifyRegistrationStatus
            await tell(registry.RegistrationStatus(plugin_registered=False, error="no room"))
            assert 'the kubelet refused the registration resource=%s error="no room"' % name in caplog.messages
            await asyncio.sleep(0.2)
            assert counted() == [refused + 1, no_stream, registered]
            await tell(registry.RegistrationStatus(plugin_registered=True))
        while counted() == [refused + 1, no_stream, registered]:
            await asyncio.sleep(0.01)
        assert counted() == [refused + 1, no_stream + 1, registered]


async def test_a_socket_that_somebody_removed_is_made_anew(short_path: Path) -> None:
    async with kubelet_at(short_path) as kubelet, plugin(short_path) as registrations:
        await kubelet.registered("example.com/dev")
        os.unlink(registrations["example.com/dev"].socket)
        # The kubelet lets go of what has gone from its folder, or the plugin has seen it first and is back already.
        await done_within(registrations["example.com/dev"].service.stream.wait_until(False), 3)
        await kubelet.until(lambda: os.path.exists(registrations["example.com/dev"].socket))
        assert await kubelet.registered("example.com/dev") == HEALTHY


async def test_what_a_killed_instance_left_is_taken_over_or_away(short_path: Path) -> None:
    folder = short_path / "plugins_registry"
    folder.mkdir()
    for name in ("node-device-plugin-old-123456.sock", "other.sock"):
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(folder / name))
    (folder / "node-device-plugin.txt").touch()
    remove_stale_sockets(str(short_path))
    assert sockets(short_path) == ["node-device-plugin.txt", "other.sock"]


def test_paths() -> None:
    longest = "/" + "d" * (names.MAX_KUBELET_ROOT_DIR - 1)
    assert len(socket_path(longest, "example.com/" + "n" * 63)) == 107
    assert socket_path("/x", "a.example.com/dev") != socket_path("/x", "b.example.com/dev")
    assert socket_path("/x", "driver.example.com", "123456") == (
        "/x/plugins_registry/node-device-plugin-driver-examp-123456.sock"
    )
    settings = {"resources": [], "registration": "plugins_registry", "kubelet_root_dir": longest + "d"}
    with pytest.raises(DeclarationError, match="kubelet_root_dir: must have at most 46 bytes"):
        parse_configuration(settings)
    assert parse_configuration({**settings, "registration": "device_plugins"})


async def test_any_api_registers_with_the_plugin_watcher(short_path: Path) -> None:
    """Also one whose service has a socket of its own."""
    refused: list[str] = []
    endpoint, versions = str(short_path / "service.sock"), ["v1.DRAPlugin", "v1.DRAResourceHealth"]
    watcher = PluginWatcher("DRAPlugin", "driver.example.com", endpoint, versions, refused.append)
    path = socket_path(str(short_path), "driver.example.com")
    async with unix_server(path, watcher.add_to), grpc.aio.insecure_channel("unix:" + path) as channel:
        kubelet = registry_grpc.RegistrationStub(channel)
        told = await kubelet.GetInfo(registry.InfoRequest())
        assert (told.type, told.name, told.endpoint) == ("DRAPlugin", "driver.example.com", endpoint)
        assert list(told.supported_versions) == versions
        await kubelet.NotifyRegistrationStatus(registry.RegistrationStatus(plugin_registered=False, error="too old"))
        assert (refused, watcher.registered.is_set()) == (["too old"], False)
        await kubelet.NotifyRegistrationStatus(registry.RegistrationStatus(plugin_registered=True))
        assert (refused, watcher.registered.is_set()) == (["too old"], True)
    assert sockets(short_path) == []
