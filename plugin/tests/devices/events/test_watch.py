"""News of what comes and goes: from directories, and from the kernel."""

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Callable, Union

import pytest

from node_device_plugin.devices.events import inotify, uevents
from node_device_plugin.devices.events.watch import Watch
from node_device_plugin.support.bounded_calls import BoundedCalls

#: A device that every machine has; its "uevent" sends a message as the kernel does (Documentation/ABI, sysfs-uevent).
UEVENT_OF_NULL = "/sys/devices/virtual/mem/null/uevent"


@contextlib.asynccontextmanager
async def watching(sweep: float = 60.0) -> AsyncIterator[Watch]:
    watch = Watch(sweep)
    try:
        yield watch
    finally:
        watch.close()


async def happens(watch: Watch) -> bool:
    return await asyncio.wait_for(watch.changed(), 10)


async def test_what_comes_goes_and_is_renamed_in_a_directory(tmp_path: Path) -> None:
    async with watching() as watch:
        await watch.look_at([str(tmp_path)], buses=False)
        changes: list[Callable[[], object]] = [
            (tmp_path / "a").touch,
            lambda: (tmp_path / "a").rename(tmp_path / "b"),
            lambda: (tmp_path / "link").symlink_to("b"),
            (tmp_path / "b").unlink,
        ]
        for change in changes:
            change()
            assert await happens(watch)


async def test_a_directory_that_is_made_anew_can_be_watched_anew(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    async with watching() as watch:
        await watch.look_at([str(inner)], buses=False)
        for leave in (inner.rmdir, lambda: inner.rename(tmp_path / "elsewhere")):
            leave()
            assert await happens(watch)
            inner.mkdir()
            await watch.look_at([str(inner)], buses=False)
            (inner / "x").touch()
            assert await happens(watch)
            (inner / "x").unlink()


async def test_a_path_that_leads_elsewhere_since_is_watched_where_it_leads(tmp_path: Path) -> None:
    """A link that is replaced (a snap's "current"), or a directory above: of neither comes any news."""
    for name in ("one", "two"):
        (tmp_path / name / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to("one")
    paths = [str(tmp_path / "link" / "inner"), str(tmp_path / "two" / "inner")]
    async with watching(sweep=0.05) as watch:
        await watch.look_at(paths, buses=False)
        (tmp_path / "link").unlink()
        await watch.look_at(paths, buses=False)
        assert not watch.sees(paths[0])
        (tmp_path / "one" / "inner" / "x").touch()
        assert not await happens(watch)
        (tmp_path / "link").symlink_to("two")
        (tmp_path / "two").rename(tmp_path / "three")
        (tmp_path / "two" / "inner").mkdir(parents=True)
        await watch.look_at(paths, buses=False)
        (tmp_path / "three" / "inner" / "x").touch()
        assert not await happens(watch)
        (tmp_path / "two" / "inner" / "x").touch()
        assert await happens(watch)


async def test_files_are_news_by_whichever_path_they_are_asked_for(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    (tmp_path / "real" / "file").touch()
    real, alias = str(tmp_path / "real"), str(tmp_path / "alias")
    for directory, of_files in ((real, alias), (alias, real)):
        async with watching() as watch:
            await watch.look_at([directory], buses=False, of_files=[of_files])
            (tmp_path / "real" / "file").write_text("written in place")
            assert await happens(watch)


class Overtaking(BoundedCalls):
    """Runs the last call first, as if each call were slow and the next one overtook it."""

    async def run(self, calls: Any, waits: bool = True) -> Any:
        return {key: call() for key, call in reversed(calls)}


async def test_a_call_that_is_overtaken_loses_no_files(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    (tmp_path / "real" / "file").touch()
    real, alias = str(tmp_path / "real"), str(tmp_path / "alias")
    for directory, of_files in ((real, alias), (alias, real)):
        found = inotify.Inotify()
        await found.watch([directory], [of_files], Overtaking())
        (tmp_path / "real" / "file").write_text("written in place")
        assert found.read()
        await found.watch([directory, of_files], [], Overtaking())
        (tmp_path / "real" / "file").write_text("files do not count any more")
        assert not found.read()
        found.close()


async def test_what_is_watched_no_more_is_no_news_and_what_is_not_there_is_left_out(tmp_path: Path) -> None:
    async with watching(sweep=0.05) as watch:
        await watch.look_at([str(tmp_path)], buses=False)
        await watch.look_at([str(tmp_path / "not there")], buses=False)
        (tmp_path / "a").touch()
        assert not await happens(watch)


async def test_two_paths_to_one_directory(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "alias").symlink_to("real")
    async with watching() as watch:
        await watch.look_at([str(tmp_path / "real"), str(tmp_path / "alias")], buses=False)
        await watch.look_at([str(tmp_path / "alias")], buses=False)
        (tmp_path / "real" / "x").touch()
        assert await happens(watch)


@pytest.mark.parametrize(
    ("method", "number", "says"),
    [
        ("__init__", errno.EMFILE, "Too many open files: raise fs.inotify.max_user_instances"),
        ("_add", errno.ENOSPC, "inotify: No space left on device: raise fs.inotify.max_user_watches"),
        ("_add", errno.EIO, "{directory}: inotify: Input/output error"),
    ],
)
async def test_where_the_kernel_watches_no_more_it_looks_often_says_so_once_and_recovers(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
    method: str,
    number: int,
    says: str,
) -> None:
    def refuse(self: object, *arguments: object) -> tuple[int, int]:
        if method == "__init__":
            raise OSError(number, os.strerror(number))
        return -1, number

    caplog.set_level("INFO")
    monkeypatch.setattr("node_device_plugin.devices.events.watch.SWEEP_WITHOUT_INOTIFY", 0.01)
    with monkeypatch.context() as exhausted:
        exhausted.setattr(inotify.Inotify, method, refuse)
        async with watching() as watch:
            for _ in range(2):
                await watch.look_at([str(tmp_path)], buses=False)
                assert not await happens(watch)
                assert watch.covers([str(tmp_path)])
            # The configuration file and the kubelet's directory have a Watch each: for them it is the same.
            async with watching() as other:
                async with watching() as closed:
                    for each in (closed, other):
                        await each.look_at([str(tmp_path)], buses=False)
                assert caplog.text.count(says.format(directory=tmp_path)) == 1
                exhausted.undo()
                await watch.look_at([str(tmp_path)], buses=False)
                assert "all directories are watched again" not in caplog.text
                await other.look_at([str(tmp_path)], buses=False)
            assert caplog.text.count("all directories are watched again") == 1
            asyncio.get_running_loop().call_later(0.1, (tmp_path / "x").touch)
            assert await happens(watch)


async def test_where_netlink_is_not_allowed_it_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(self: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(uevents.Uevents, "__init__", refuse)
    async with watching(sweep=0.01) as watch:
        for _ in range(2):
            await watch.look_at([], buses=True)
        assert not await happens(watch)
    assert caplog.text.count("cannot receive uevents") == 1


def kernel_speaks(action: str) -> None:
    Path(UEVENT_OF_NULL).write_text(action)


@pytest.fixture
def kernel() -> None:
    """Skips where the kernel cannot be made to speak, or is not heard here."""
    try:
        listener = uevents.Uevents()
    except OSError as error:
        pytest.skip("no netlink: %s" % error)
    try:
        kernel_speaks("add")
    except OSError as error:
        pytest.skip("sysfs cannot be written: %s" % error)
    heard = listener.read()
    listener.close()
    if not heard:
        pytest.skip("the kernel's messages do not reach this network namespace")


@pytest.mark.usefixtures("kernel")
async def test_the_kernel_tells_of_devices() -> None:
    async with watching() as watch:
        await watch.look_at([], buses=True)
        kernel_speaks("add")
        assert await happens(watch)


@pytest.mark.usefixtures("kernel")
def test_a_change_of_state_and_what_is_not_the_kernels_are_no_news() -> None:
    listener = uevents.Uevents()
    try:
        kernel_speaks("change")
        assert not listener.read()
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15) as pretender:
            port = listener._socket.getsockname()[0]
            pretender.sendto(b"add@/devices/fake\0ACTION=add\0", (port, 0))
        assert not listener.read()
        kernel_speaks("remove")
        assert listener.read()
    finally:
        listener.close()


class FakeSocket:
    """A netlink socket that gives these messages and errors, one after the other, and then has nothing more."""

    def __init__(self, *gives: Union[bytes, int]) -> None:
        self.gives = list(gives)

    def bind(self, _address: object) -> None:
        pass

    def recvfrom(self, _size: int) -> tuple[bytes, tuple[int, int]]:
        given = self.gives.pop(0) if self.gives else errno.EAGAIN
        if isinstance(given, int):
            raise OSError(given, os.strerror(given))
        return given, (0, 1)


@pytest.mark.parametrize("then", [[], [b"change@/devices/x\0"], [b"change@/devices/x\0", b"add@/devices/x\0"]])
def test_messages_that_the_kernel_drops_are_news(monkeypatch: pytest.MonkeyPatch, then: list[bytes]) -> None:
    netlink = FakeSocket(errno.ENOBUFS, *then)
    monkeypatch.setattr(socket, "socket", lambda *_arguments: netlink)
    listener = uevents.Uevents()
    assert listener.read()
    assert netlink.gives == []
    assert not listener.read()


# Below ENOBUFS and above it.
@pytest.mark.parametrize("number", [errno.ENOMEM, errno.ETIMEDOUT])
def test_another_error_of_the_socket_is_raised(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(socket, "socket", lambda *_arguments: FakeSocket(number))
    listener = uevents.Uevents()
    with pytest.raises(OSError, match=os.strerror(number)):
        listener.read()


def test_where_the_kernel_drops_news_a_directory_that_was_made_anew_meanwhile_is_watched(tmp_path: Path) -> None:
    """The end of its watch is among what is lost, or it would be taken for watched until it is swept."""
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    inner = tmp_path / "inner"
    inner.mkdir()
    source = inotify.Inotify()
    try:
        source.watch_now([str(tmp_path), str(inner)])
        for _ in range(most // 2 + 1):
            (inner / "x").touch()
            (inner / "x").unlink()
        inner.rmdir()
        inner.mkdir()
        assert source.read()
        source.watch_now([str(tmp_path), str(inner)])
        source.read()
        (inner / "x").touch()
        assert source.read()
    finally:
        source.close()


def test_descriptors_are_given_back() -> None:
    def instances() -> int:
        """Of inotify alone: others go with the garbage of earlier tests."""
        descriptors = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
        return [os.readlink(path) for path in descriptors].count("anon_inode:inotify")

    before = instances()
    for _ in range(3):
        source = inotify.Inotify()
        source.watch_now(["/dev"])
        source.close()
    assert instances() == before
