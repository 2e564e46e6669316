"""The kubelet's socket as resources share it."""

import asyncio
import errno
import os
import socket
from pathlib import Path

import pytest

from kubelet_stand_in import StandInKubelet
from node_device_plugin.devices.events import watch
from node_device_plugin.kubelet.device_plugin import kubelet_socket
from node_device_plugin.kubelet.device_plugin.kubelet_socket import KubeletSocket
from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

REQUEST = api.RegisterRequest(version="v0", endpoint="none.sock", resource_name="example.com/dev")


async def test_all_that_wait_hear_of_a_new_socket_and_one_that_gives_up_leaves_the_others(short_path: Path) -> None:
    socket = KubeletSocket(str(short_path))
    assert socket.identity() is None
    waiting = [asyncio.create_task(socket.other_than(None)) for _ in range(3)]
    await asyncio.sleep(0.01)
    waiting.pop().cancel()
    Path(socket.path).touch()
    first = await asyncio.wait_for(asyncio.gather(*waiting), 5)
    assert first == [socket.identity()] * 2
    again = asyncio.create_task(socket.other_than(first[0]))
    await asyncio.sleep(0.05)
    assert not again.done()
    Path(socket.path).unlink()
    Path(socket.path).touch()
    assert await asyncio.wait_for(again, 5) == socket.identity() != first[0]


def test_a_socket_of_which_only_the_mode_changes_is_the_same_kubelets_and_one_with_its_inode_need_not_be(
    short_path: Path,
) -> None:
    kubelet = KubeletSocket(str(short_path))
    Path(kubelet.path).touch()
    identity = kubelet.identity()
    Path(kubelet.path).chmod(0o600)
    os.link(kubelet.path, short_path / "link")
    assert kubelet.identity() == identity
    # As a file system gives the inode to the next kubelet's socket.
    os.utime(kubelet.path)
    assert kubelet.identity() != identity


def test_a_socket_that_a_kubelet_left_behind_answers_nobody(short_path: Path) -> None:
    kubelet = KubeletSocket(str(short_path))
    assert not kubelet.answers()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(kubelet.path)
        assert not kubelet.answers()
        server.listen(1)
        # One that takes in nobody at the moment is there all the same.
        assert [kubelet.answers() for _ in range(5)] == [True] * 5
    assert not kubelet.answers()


async def test_the_kubelets_checkpoint_wakes_nobody_while_nobody_waits(
    short_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, woken = watch.Inotify.read, []

    def counted(inotify: watch.Inotify) -> "set[str]":
        woken.append(inotify)
        return read(inotify)

    monkeypatch.setattr(watch.Inotify, "read", counted)
    # Only news wakes who waits.
    monkeypatch.setattr(kubelet_socket, "_SWEEP", 3600)
    socket = KubeletSocket(str(short_path))
    Path(socket.path).touch()
    known = await socket.other_than(None)
    await asyncio.sleep(0.05)
    woken.clear()
    (short_path / "kubelet_internal_checkpoint").touch()
    await asyncio.sleep(0.05)
    assert woken == []
    waiting = asyncio.create_task(socket.other_than(known))
    await asyncio.sleep(0.05)
    Path(socket.path).unlink()
    Path(socket.path).touch()
    assert await waiting == socket.identity() != known
    assert woken
    socket.close()


@pytest.mark.parametrize("is_there", [True, False], ids=["no inotify", "no directory yet"])
async def test_found_where_the_directory_cannot_be_watched(
    short_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    def refuse() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    directory = short_path / "dp"
    if is_there:
        monkeypatch.setattr(watch, "Inotify", refuse)
        directory.mkdir()
    socket = KubeletSocket(str(directory))
    waiting = asyncio.create_task(socket.other_than(None))
    await asyncio.sleep(0.01)
    directory.mkdir(exist_ok=True)
    Path(socket.path).touch()
    assert await asyncio.wait_for(waiting, 5) == socket.identity()
    socket.close()


async def test_after_a_call_that_failed_the_next_one_has_a_connection_of_its_own(short_path: Path) -> None:
    socket = KubeletSocket(str(short_path / "dp"))
    for _ in range(3):
        with pytest.raises(grpc.aio.AioRpcError) as nobody:
            await socket.register(REQUEST, 5)
        assert nobody.value.code() == grpc.StatusCode.UNAVAILABLE
    async with StandInKubelet(str(short_path / "dp")):
        refused = await asyncio.gather(*(socket.register(REQUEST, 5) for _ in range(5)), return_exceptions=True)
        assert [error.code() for error in refused] == [grpc.StatusCode.UNKNOWN] * 5


class Channel:
    """A connection that only knows whether it is open."""

    made: "list[Channel]"

    def __init__(self, _path: str) -> None:
        self.is_open = True
        self.made.append(self)

    async def close(self) -> None:
        self.is_open = False


class Stub:
    """Answers each call when the test says so."""

    answers: "list[asyncio.Future[None]]"

    def __init__(self, channel: Channel) -> None:
        assert channel.is_open

    async def Register(self, _request: api.RegisterRequest, timeout: float) -> None:
        self.answers.append(asyncio.get_running_loop().create_future())
        await self.answers[-1]


async def test_simultaneous_calls_share_a_connection_until_one_of_them_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    Channel.made, Stub.answers = made, answers = [], []
    monkeypatch.setattr(kubelet_socket, "unix_channel", Channel)
    monkeypatch.setattr(kubelet_socket.api_grpc, "RegistrationStub", Stub)
    socket = KubeletSocket("/none")

    async def call() -> "asyncio.Future[None]":
        called = asyncio.ensure_future(socket.register(REQUEST, 5))
        await asyncio.sleep(0)
        return called

    first, second = await call(), await call()
    answers[0].set_result(None)
    await first
    third = await call()
    assert [each.is_open for each in made] == [True]
    answers[1].set_exception(ConnectionError())
    with pytest.raises(ConnectionError):
        await second
    fourth = await call()
    assert [each.is_open for each in made] == [True, True]
    answers[2].set_result(None)
    await third
    fifth = await call()
    assert [each.is_open for each in made] == [False, True]
    for answer in answers[3:]:
        answer.set_result(None)
    await asyncio.gather(fourth, fifth)
    assert [each.is_open for each in made] == [False, False]
