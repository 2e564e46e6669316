"""The lock of a node's instances: nobody but root can take it, and an earlier release's lock counts."""

import asyncio
import contextlib
import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from node_device_plugin.daemon.single_instance import AnotherServes, SingleInstance
from node_device_plugin.status_api import probe
from node_device_plugin.support.sockets import instance_file

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")


def try_as_nobody(path: Path) -> str:
    """What another user hears who wants to lock the directory."""
    command = ["flock", "--nonblock", str(path), "true"]
    done = subprocess.run(command, user=65534, group=65534, stderr=subprocess.PIPE, text=True, check=False)
    return "locked" if done.returncode == 0 else done.stderr.strip().rpartition(": ")[2] or "busy"


@pytest.fixture
def directory(short_path: Path) -> Path:
    """A device plugin directory that everybody may enter."""
    for path in (short_path, short_path.parent):
        if path.parent != path and path.stat().st_uid == os.geteuid() and path != Path("/tmp"):
            path.chmod(0o755)
    return short_path


@as_root
@pytest.mark.parametrize("mode", [None, 0o755, 0o777])
def test_no_other_user_can_lock_the_directory(directory: Path, mode: "int | None") -> None:
    sockets = directory / "node-device-plugin"
    if mode:
        # As the kubelet and an earlier release create it.
        sockets.mkdir()
        sockets.chmod(mode)
        assert try_as_nobody(sockets) == "locked"
    instance = SingleInstance()
    assert instance.take(str(directory))
    instance.release()
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert try_as_nobody(sockets) == "Permission denied"


def open_in(directory: Path) -> list[str]:
    """The open files of the directory, and only these: other tests' files may be closed at any time."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(each))
    return sorted(path for path in found if path.startswith(str(directory)))


def test_a_lock_that_is_taken_leaves_no_file_open(directory: Path) -> None:
    leader, other = SingleInstance(), SingleInstance()
    assert leader.take(str(directory))
    before = open_in(directory)
    assert before
    with pytest.raises(AnotherServes):
        other.take(str(directory))
    assert open_in(directory) == before
    leader.release()
    assert other.take(str(directory))
    other.release()


async def test_an_instance_that_starts_in_a_deleted_directory_ends(directory: Path) -> None:
    """Its mount shows the deleted directory until its restart, so that waiting would never end."""
    deleted = directory / "deleted"
    deleted.mkdir()
    file = os.open(deleted, os.O_RDONLY)
    deleted.rmdir()
    try:
        with pytest.raises(FileNotFoundError):
            await asyncio.wait_for(SingleInstance().wait(f"/proc/self/fd/{file}", asyncio.Event()), 10)
    finally:
        os.close(file)


@pytest.mark.parametrize("made", ["pipe", "link"])
def test_what_a_pod_made_at_the_path_of_the_name_is_neither_read_nor_waited_for(directory: Path, made: str) -> None:
    """A pod that mounts the kubelet's directory can write there."""
    secret, path = directory / "secret", Path(instance_file(str(directory)))
    secret.write_text("of the node\n")
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path) if made == "pipe" else path.symlink_to(secret)
    leader, other = SingleInstance("first", True), SingleInstance("first", True)
    assert leader.take(str(directory))
    with pytest.raises(AnotherServes) as refused:
        other.take(str(directory))
    assert not other.join(str(directory))
    assert "of the node" not in str(refused.value)
    assert secret.read_text() == "of the node\n"
    assert probe.probe(str(directory / "none.sock"), "/healthz", str(path)).startswith(str(directory))
    leader.release()


async def test_a_lock_of_an_earlier_release_counts_and_the_directory_is_closed_meanwhile(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It made the directory for everybody, and serves until it ends. Who waits for its end leaves no gap to others."""
    sockets = directory / "node-device-plugin"
    sockets.mkdir(mode=0o755)
    former = os.open(sockets, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(former, fcntl.LOCK_EX | fcntl.LOCK_NB)
    instance, stop = SingleInstance(), asyncio.Event()
    with pytest.raises(AnotherServes):
        instance.take(str(directory))
    waiting = asyncio.ensure_future(instance.wait(str(directory), stop))
    while not caplog.records:
        await asyncio.sleep(0.01)
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert f"another instance of the plugin serves in {sockets}" in caplog.text
    assert f"process {os.getpid()} (" in caplog.text
    assert not waiting.done()
    os.close(former)
    assert await waiting
    assert instance.leads(str(directory))
    instance.release()
