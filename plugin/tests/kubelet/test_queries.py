"""Questions to a kubelet that has just started: it answers before it knows its pods."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.cdi.links import Links
from node_device_plugin.kubelet import queries
from node_device_plugin.kubelet.pod_resources import Holder, Listing
from node_device_plugin.support.bounded_calls import BoundedCalls, NoAnswer

KNOWN = Listing(1, [Holder("default", "own", "main", "example.com/dev", ("d0",))])


@pytest.fixture
def kubelet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Listing]:
    """The answers of a kubelet that started now and has a pod on its disk; the last answer stays."""
    answers = [KNOWN]

    async def listed(_kubelet_root: str) -> Listing:
        return answers.pop(0) if len(answers) > 1 else answers[0]

    (tmp_path / "pod-resources").mkdir()
    (tmp_path / "pod-resources" / "kubelet.sock").touch()
    (tmp_path / "pods" / "uid").mkdir(parents=True)
    monkeypatch.setattr(queries, "_listed", listed)
    monkeypatch.setattr(queries, "_PAUSE", 0.01)
    return answers


async def listing(folder: Path) -> Any:
    return await queries.listing(str(folder), str(folder / "dp"))


async def test_a_kubelet_is_asked_until_it_knows_its_pods(tmp_path: Path, kubelet: list[Listing]) -> None:
    kubelet[:] = [Listing(0, []), Listing(0, []), KNOWN]
    assert (await listing(tmp_path)).holders == KNOWN.holders


async def test_a_socket_on_a_dead_mount_holds_up_no_other_task(
    tmp_path: Path, kubelet: list[Listing], monkeypatch: pytest.MonkeyPatch
) -> None:
    mounted_again = threading.Event()
    monkeypatch.setattr(queries, "has_just_started", lambda _kubelet_root: mounted_again.wait(30))
    links = Links(BoundedCalls(limit=0.1))
    asked = asyncio.ensure_future(queries.holders(str(tmp_path), str(tmp_path / "dp"), [], links))
    try:
        with pytest.raises(NoAnswer):
            await asyncio.wait_for(asked, 10)
    finally:
        mounted_again.set()


async def test_a_kubelet_without_pods_is_believed(tmp_path: Path, kubelet: list[Listing]) -> None:
    kubelet[:] = [Listing(0, []), KNOWN]
    (tmp_path / "pods" / "uid").rmdir()
    assert (await listing(tmp_path)).pods == 0


async def test_a_kubelet_that_has_had_the_time_is_believed(
    tmp_path: Path, kubelet: list[Listing], monkeypatch: pytest.MonkeyPatch
) -> None:
    kubelet[:] = [Listing(0, []), KNOWN]
    monkeypatch.setattr(queries, "_STARTING", 0.0)
    assert (await listing(tmp_path)).pods == 0


@pytest.mark.parametrize("ahead", [-7200, 0, 7200])
def test_a_wrong_clock_makes_no_kubelet_new_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """The clock was hours ahead or behind when the kubelet started."""
    socket = tmp_path / queries.POD_RESOURCES_SOCKET
    socket.parent.mkdir(exist_ok=True)
    socket.touch()
    wall, now = time.time(), [1000.0]
    monkeypatch.setattr(queries, "_SOCKETS", {})
    monkeypatch.setattr(queries.time, "time", lambda: wall - ahead)
    monkeypatch.setattr(queries.time, "monotonic", lambda: now[0])
    # A socket that this process did not see before may be old.
    assert queries.has_just_started(str(tmp_path)) == (ahead >= 0)
    now[0] += queries._STARTING
    assert not queries.has_just_started(str(tmp_path))
    # Another socket in its place is new, whatever the clock says.
    other = tmp_path / "other"
    other.touch()
    other.rename(socket)
    assert queries.has_just_started(str(tmp_path))
    now[0] += queries._STARTING
    assert not queries.has_just_started(str(tmp_path))
