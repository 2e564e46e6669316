"""The kubelet connection through a kubelet's life: late, restarted, gone wrong, with sockets removed."""

import asyncio
import contextlib
import errno
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Callable

import pytest
import yaml

from kubelet_stand_in import PodRejected, StandInKubelet
from kubelet_stand_in.plugin_clients import CallError, Client
from node_device_plugin.declaration import names, parse_resources
from node_device_plugin.kubelet.device_plugin import kubelet_socket, registration
from node_device_plugin.kubelet.device_plugin.kubelet_socket import KubeletSocket
from node_device_plugin.kubelet.device_plugin.registration import Registration, remove_stale_sockets, socket_path
from node_device_plugin.status_api.server import Endpoint
from node_device_plugin.support.channels import unix_server
from node_device_plugin.telemetry import metrics
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

from ..serving import kept_registered

RESOURCES = parse_resources(
    yaml.safe_load(
        """
        - name: example.com/dev
          env: {"DEV_{index}": "{id}"}
          devices: [{id: d0, nodes: [{path: /dev/null}]}, {id: d1, nodes: [{path: /dev/zero}]}]
        - {name: example.com/none}
        """
    )
)


def plugin(directory: str) -> contextlib.AbstractAsyncContextManager[dict[str, Registration]]:
    kubelet = KubeletSocket(directory)
    return kept_registered(RESOURCES, lambda service: Registration(service, kubelet))


@pytest.fixture
def directory(short_path: Path) -> str:
    return str(short_path / "dp")


@pytest.fixture
def deleted(short_path: Path) -> Iterator[str]:
    """The path of a folder that was deleted and can still be entered, as where something is mounted from it."""
    (short_path / "deleted").mkdir()
    descriptor = os.open(short_path / "deleted", os.O_RDONLY)
    (short_path / "deleted").rmdir()
    yield "/proc/self/fd/%d" % descriptor
    os.close(descriptor)


def sockets(directory: str) -> list[str]:
    with contextlib.suppress(FileNotFoundError):
        return sorted(os.listdir(os.path.join(directory, "node-device-plugin")))
    return []


async def all_registered(kubelet: StandInKubelet) -> None:
    for resource in RESOURCES:
        await kubelet.registered(resource.name)


async def test_every_resource_is_registered_those_without_devices_too(directory: str) -> None:
    async with StandInKubelet(directory) as kubelet, plugin(directory):
        assert await kubelet.registered("example.com/dev") == {"d0": "Healthy", "d1": "Healthy"}
        assert await kubelet.registered("example.com/none") == {}


async def test_the_kubelet_comes_later(directory: str) -> None:
    async with plugin(directory) as registrations:
        await asyncio.gather(*(registration.serving.wait() for registration in registrations.values()))
        assert not any(registration.service.stream.is_open for registration in registrations.values())
        async with StandInKubelet(directory) as kubelet:
            await all_registered(kubelet)


async def test_a_pod_gets_names_and_numbers(directory: str) -> None:
    async with StandInKubelet(directory) as kubelet, plugin(directory):
        await all_registered(kubelet)
        pod = await kubelet.allocate_pod("test", {"main": {"example.com/dev": 2}})
        container = pod.containers["main"]
        assert {env.key: env.value for env in container.envs} == {"DEV_0": b"d0", "DEV_1": b"d1"}
        assert sorted(device.name for device in container.CDI_devices) == ["example.com/dev=d0", "example.com/dev=d1"]


async def test_the_kubelet_restarts_many_times(directory: str) -> None:
    """Complaints 1 and 3: a lost stream, and pods that meet a resource without devices."""
    async with StandInKubelet(directory) as kubelet, plugin(directory):
        await all_registered(kubelet)
        served = sockets(directory)
        for _ in range(10):
            await kubelet.restart()
            await all_registered(kubelet)
        # The kubelet sweeps sockets beside its own, not folders: ours survived, so only Register was needed.
        assert sockets(directory) == served
        await kubelet.allocate_pod("test", {"main": {"example.com/dev": 1}})


async def test_a_kubelet_that_was_away_for_a_while_is_noticed_without_a_retry(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only news of the new socket leads to another registration: neither a retry nor a sweep.
    monkeypatch.setattr(registration, "_FIRST_RETRY", 3600)
    monkeypatch.setattr(registration, "_LAST_RETRY", 3600)
    monkeypatch.setattr(registration, "_FIRST_LOOK", 3600)
    monkeypatch.setattr(kubelet_socket, "_SWEEP", 3600)
    async with StandInKubelet(directory) as kubelet, plugin(directory):
        await all_registered(kubelet)
        before = {each.name: metrics.REGISTRATIONS.value(each.name, "no_kubelet") for each in RESOURCES}
        await kubelet.stop()
        for name, count in before.items():
            while metrics.REGISTRATIONS.value(name, "no_kubelet") == count:
                await asyncio.sleep(0.01)
        await kubelet.start()
        await all_registered(kubelet)


async def test_a_lost_stream_is_made_anew_without_a_restart_of_anybody(directory: str) -> None:
    async with StandInKubelet(directory) as kubelet, plugin(directory) as registrations:
        await all_registered(kubelet)
        for _ in range(5):
            registrations["example.com/dev"].service.stream.end()
            await registrations["example.com/dev"].service.stream.wait_until(False)
            assert await kubelet.registered("example.com/dev") == {"d0": "Healthy", "d1": "Healthy"}


KUBELETS = pytest.mark.parametrize("minor", [(1, 36), (1, 37)], ids=["1.36", "1.37"])


@contextlib.asynccontextmanager
async def no_name_twice(directory: str, minor: tuple[int, int]) -> AsyncIterator[StandInKubelet]:
    """A kubelet that gets each socket once at most, and has no healthy device when the plugin has gone."""
    async with StandInKubelet(directory, minor=minor) as kubelet:
        async with plugin(directory):
            yield kubelet
            await all_registered(kubelet)
            assert await kubelet.registered("example.com/dev") == {"d0": "Healthy", "d1": "Healthy"}
            asked = kubelet.manager.clients.asked
            assert len(asked) > len(RESOURCES)
            assert len(asked) == len(set(asked))
        await kubelet.disconnected("example.com/dev")
        await kubelet.until(lambda: kubelet.devices("example.com/dev") == {"d0": "Unhealthy", "d1": "Unhealthy"})


def first_time(before: Callable[[], Awaitable[None]], function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """The function, which waits for something the first time that it is called for the resource with devices."""
    is_over = []

    async def wrapped(client: Any, *arguments: Any) -> Any:
        if client.resource == "example.com/dev" and not is_over:
            is_over.append(True)
            await before()
        return await function(client, *arguments)

    return wrapped


@KUBELETS
async def test_a_stream_that_ended_is_registered_by_another_name(directory: str, minor: tuple[int, int]) -> None:
    async with no_name_twice(directory, minor) as kubelet:
        await all_registered(kubelet)
        for _ in range(5):
            client = kubelet.manager.endpoints["example.com/dev"].client
            assert client is not None
            await client.close()
            await kubelet.until(lambda old=client: kubelet.manager.endpoints["example.com/dev"].client is not old)
            await all_registered(kubelet)
        assert len(sockets(directory)) == len(RESOURCES)


@KUBELETS
async def test_a_stream_that_is_slower_than_its_deadline_is_registered_by_another_name(
    directory: str, minor: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From 1.37 a second Register with the same socket makes a kubelet keep its devices for ever."""
    monkeypatch.setattr(registration, "_STREAM_DEADLINE", 0.1)
    monkeypatch.setattr(Client, "watch", first_time(lambda: asyncio.sleep(0.5), Client.watch))
    async with no_name_twice(directory, minor) as kubelet:
        await kubelet.until(lambda: len(kubelet.manager.clients.asked) > len(RESOURCES))


@KUBELETS
async def test_after_a_register_that_nobody_answered_another_name_is_registered(
    directory: str, minor: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "_REGISTER_DEADLINE", 0.2)
    monkeypatch.setattr(Client, "connect", first_time(lambda: asyncio.sleep(0.5), Client.connect))
    async with no_name_twice(directory, minor) as kubelet:
        await kubelet.until(lambda: len(kubelet.manager.clients.asked) > len(RESOURCES))


@KUBELETS
async def test_after_a_refusal_another_name_is_registered(
    directory: str, minor: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse() -> None:
        raise CallError("no luck today")

    monkeypatch.setattr(Client, "connect", first_time(refuse, Client.connect))
    async with no_name_twice(directory, minor) as kubelet:
        await kubelet.until(lambda: len(kubelet.manager.clients.asked) > len(RESOURCES))


class Faults:
    """What happens before each call of the kubelet's to the plugin, by chance, until there have been enough."""

    def __init__(self, seed: int, count: int = 6) -> None:
        self._chance = random.Random(seed)
        self.left = count

    async def next(self) -> None:
        if self.left > 0:
            self.left -= 1
            fault = self._chance.choice(["late", "later", "error", "nothing"])
            await asyncio.sleep({"late": 0.05, "later": 1.5}.get(fault, 0))
            if fault == "error":
                raise CallError("no luck today")

    def before(self, function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        async def wrapped(client: Any, *arguments: Any) -> Any:
            if client.resource == "example.com/dev":
                await self.next()
            return await function(client, *arguments)

        return wrapped


@KUBELETS
@pytest.mark.parametrize("seed", range(3))
async def test_whatever_is_late_or_fails_one_registration_is_left(
    directory: str, minor: tuple[int, int], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(seed)

    async def watch(client: Any, on_devices: Any) -> str:
        try:
            return str(await opened(client, on_devices))
        except CallError as error:
            return str(error)

    opened = faults.before(Client.watch)
    monkeypatch.setattr(registration, "_STREAM_DEADLINE", 1)
    monkeypatch.setattr(registration, "_REGISTER_DEADLINE", 1)
    monkeypatch.setattr(Client, "connect", faults.before(Client.connect))
    monkeypatch.setattr(Client, "watch", watch)
    async with no_name_twice(directory, minor) as kubelet:
        while faults.left:
            await all_registered(kubelet)
            client = kubelet.manager.endpoints["example.com/dev"].client
            if client is not None:
                await client.close()
            await kubelet.until(lambda old=client: kubelet.manager.endpoints["example.com/dev"].client is not old, 60)
        await all_registered(kubelet)
        clients = kubelet.manager.clients
        await kubelet.until(lambda: [each.resource for each in clients._open].count("example.com/dev") == 1)
        assert len(sockets(directory)) == len(RESOURCES)


async def test_registered_twice_with_one_kubelet_a_lost_stream_is_noticed_all_the_same(directory: str) -> None:
    """As somebody else may do it up to 1.36, where the kubelet then reads two streams and knows of the second one only
    (complaint 2).
    """
    async with StandInKubelet(directory) as kubelet, plugin(directory):
        await all_registered(kubelet)
        (socket,) = [name for name in sockets(directory) if name.startswith("dev-")]
        first = kubelet.manager.endpoints["example.com/dev"].client
        request = api.RegisterRequest(
            version="v1beta1", endpoint="node-device-plugin/" + socket, resource_name="example.com/dev"
        )
        await KubeletSocket(directory).register(request, 5)
        await kubelet.until(lambda: kubelet.manager.endpoints["example.com/dev"].client is not first)
        await all_registered(kubelet)
        for _ in range(3):
            client = kubelet.manager.endpoints["example.com/dev"].client
            assert client is not None
            await client.close()
            await kubelet.until(lambda old=client: kubelet.manager.endpoints["example.com/dev"].client is not old)
            await all_registered(kubelet)


async def test_a_socket_that_somebody_removed_is_made_anew(directory: str) -> None:
    async with StandInKubelet(directory) as kubelet, plugin(directory):
        await all_registered(kubelet)
        for name in sockets(directory):
            os.unlink(os.path.join(directory, "node-device-plugin", name))
        await kubelet.restart()
        await all_registered(kubelet)
        assert len(sockets(directory)) == len(RESOURCES)


async def test_the_whole_directory_is_wiped(directory: str) -> None:
    """As kubeadm reset does."""
    async with plugin(directory):
        async with StandInKubelet(directory) as kubelet:
            await all_registered(kubelet)
        for folder, _, names in os.walk(directory, topdown=False):
            for name in names:
                os.unlink(os.path.join(folder, name))
            os.rmdir(folder)
        async with StandInKubelet(directory) as kubelet:
            await all_registered(kubelet)


async def test_a_folder_that_cannot_be_made_again_ends_the_process(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """systemd then makes the directory and the sandbox again."""

    def read_only(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    async with plugin(directory) as registrations:
        registration = registrations["example.com/dev"]
        await registration.serving.wait()
        monkeypatch.setattr(os, "makedirs", read_only)
        with pytest.raises(OSError, match="Read-only"):
            await asyncio.wait_for(registration.run(), 10)


async def test_a_deleted_folder_that_a_mount_still_shows_ends_the_process(
    deleted: str, directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a sandbox or of a pod."""
    async with plugin(directory) as registrations:
        registration = registrations["example.com/dev"]
        monkeypatch.setattr(registration, "_socket_path", lambda: deleted + "/x.sock")
        with pytest.raises(FileNotFoundError):
            await asyncio.wait_for(registration.run(), 10)
    with pytest.raises(FileNotFoundError):
        await asyncio.wait_for(Endpoint({}, deleted + "/status.sock").run(), 10)


async def test_a_kubelet_that_ends_every_stream_at_once_is_not_hammered(
    directory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []

    async def pause(news: Coroutine[Any, Any, Any], seconds: float) -> bool:
        pauses.append(seconds)
        news.close()
        return False

    monkeypatch.setattr(registration, "_STEADY", 3600)
    monkeypatch.setattr(registration, "done_within", pause)
    async with StandInKubelet(directory) as kubelet, plugin(directory) as registrations:
        await all_registered(kubelet)
        stream = registrations["example.com/dev"].service.stream
        for _ in range(7):
            await stream.wait_until(True)
            stream.end()
            await stream.wait_until(False)
        await kubelet.registered("example.com/dev")
        # A try that meets a connection which the kubelet is closing takes another pause.
        assert pauses[:7] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
        assert set(pauses[7:]) <= {2.0}


async def test_a_clean_stop_leaves_no_socket_and_no_healthy_device(directory: str) -> None:
    async with StandInKubelet(directory) as kubelet:
        async with plugin(directory):
            await all_registered(kubelet)
        assert sockets(directory) == []
        await kubelet.disconnected("example.com/dev")
        with pytest.raises(PodRejected):
            await kubelet.allocate_pod("test", {"main": {"example.com/dev": 1}})


async def test_an_unhealthy_device_shows_at_once_and_is_given_to_nobody(directory: str) -> None:
    async with StandInKubelet(directory) as kubelet, plugin(directory) as registrations:
        await all_registered(kubelet)
        registrations["example.com/dev"].service.offered.table.update({"d0": "/dev/null: gone", "d1": None})
        await kubelet.until(lambda: kubelet.devices("example.com/dev") == {"d0": "Unhealthy", "d1": "Healthy"})
        with pytest.raises(PodRejected):
            await kubelet.allocate_pod("test", {"main": {"example.com/dev": 2}})


def test_sockets_of_a_killed_instance_are_removed_and_nothing_else(directory: str) -> None:
    os.makedirs(os.path.join(directory, "node-device-plugin", "folder.sock"))
    own = "node-device-plugin/"
    for name in ("kubelet.sock", "other.sock", own + "dev-1.sock", own + "notes"):
        Path(directory, name).touch()
    with socket.socket(socket.AF_UNIX) as killed, socket.socket(socket.AF_UNIX) as living:
        killed.bind(os.path.join(directory, own, "killed.sock"))
        living.bind(os.path.join(directory, own, "living.sock"))
        living.listen()
        killed.close()
        remove_stale_sockets(directory)
    assert sockets(directory) == ["dev-1.sock", "folder.sock", "living.sock", "notes"]
    assert Path(directory, "other.sock").exists()


async def test_a_socket_path_that_is_too_long_is_refused_with_its_length(tmp_path: Path) -> None:
    path = tmp_path / ("d" * 100) / "x.sock"
    with pytest.raises(OSError, match="longer than 107 bytes"):
        async with unix_server(str(path), lambda server: None):
            pass
    assert not path.parent.exists()


def test_the_longest_socket_path_that_a_declaration_gives_can_be_had() -> None:
    assert len(socket_path("/" + "d" * (names.MAX_DEVICE_PLUGIN_DIR - 1), "example.com/" + "n" * 63)) == 107


def test_no_two_servers_share_a_path() -> None:
    assert len({socket_path("/x", "example.com/dev") for _ in range(100)}) == 100


async def test_that_nobody_answers_is_said_once_each_time(directory: str, caplog: pytest.LogCaptureFixture) -> None:
    """A kubelet that is stopped leaves its socket behind, which is tried again every two seconds."""
    caplog.set_level("INFO")
    path = os.path.join(directory, "kubelet.sock")

    async def tried(times: int) -> list[str]:
        before = metrics.REGISTRATIONS.value("example.com/dev", "no_kubelet")
        os.makedirs(directory, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as left_behind:
            left_behind.bind(path)
        while metrics.REGISTRATIONS.value("example.com/dev", "no_kubelet") < before + times:
            await asyncio.sleep(0.01)
        os.unlink(path)
        return [m for m in caplog.messages if m == "no kubelet answers resource=example.com/dev socket=%s" % path]

    async with plugin(directory):
        assert len(await tried(3)) == 1
        async with StandInKubelet(directory) as kubelet:
            await all_registered(kubelet)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        assert len(await tried(3)) == 2
