"""What a container was given stays its own, also where a write fails, a node goes alone, or a file is unreadable."""

import asyncio
import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kubelet_stand_in import StandInKubelet
from node_device_plugin.cdi import writer
from node_device_plugin.cli.main import main
from node_device_plugin.daemon import resource_manager
from node_device_plugin.daemon.single_instance import SingleInstance
from node_device_plugin.declaration import parse_configuration
from node_device_plugin.devices import record
from node_device_plugin.devices.health import Health
from node_device_plugin.kubelet import queries
from node_device_plugin.kubelet.device_plugin.kubelet_socket import KubeletSocket
from node_device_plugin.kubelet.device_plugin.registration import Registration
from node_device_plugin.kubelet.pod_resources import PodResourcesError
from node_device_plugin.support.bounded_calls import BoundedCalls
from node_device_plugin.support.channels import grpc

from ..serving import kept_registered
from .held_node import (
    HELD,
    MOVED,
    NEW,
    NULL,
    OLD,
    ZERO,
    Links,
    Node,
    check,
    device,
    given,
    has,
    hold,
    made,
    resource,
    restart,
)

CLOSED = " (another device has this path now)"


def names_in(folder: Path) -> set[str]:
    return {d["name"] for file in (folder / "cdi").glob("*.json") for d in json.loads(file.read_text())["devices"]}


async def moved_and_held(node: Node, kubelet: StandInKubelet, links: Links) -> tuple[str, str]:
    links.lead(a="/dev/null")
    await node.start(links.discovered)
    pod = await hold(kubelet, OLD)
    links.lead(a="/dev/zero")
    await check(node)
    a = links.id_of("a")
    assert node.reasons() == {a: MOVED % (OLD, "/dev/null", "/dev/zero")}
    return a, pod


async def test_a_device_is_free_only_after_its_spec_has_its_new_meaning(
    node: Node, kubelet: StandInKubelet, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, pod = await moved_and_held(node, kubelet, links)
    write, seen = writer.write, []

    def look(*arguments: Any) -> Any:
        seen.append((node.reasons()[a] is None, given(node.folder)[a]))
        return write(*arguments)

    monkeypatch.setattr(writer, "write", look)
    await kubelet.remove_pod(pod)
    await has(kubelet, OLD, {a: "Healthy"})
    assert (False, "/dev/null") in seen
    assert (True, "/dev/null") not in seen


@pytest.mark.parametrize("how", ["fails", "hangs"])
async def test_a_device_whose_spec_cannot_be_written_is_not_free_in_between(
    node: Node, kubelet: StandInKubelet, links: Links, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    a, pod = await moved_and_held(node, kubelet, links)
    assert node.resources is not None
    monkeypatch.setattr(node.resources._scanner, "_calls", BoundedCalls(0.1))
    write, checked, ends, seen = writer.write, Health.check, threading.Event(), []

    def refuse(*arguments: Any) -> Any:
        if how == "fails":
            raise writer.NotWritten("x", OSError(errno.ENOSPC, "No space left on device"), frozenset([f"{OLD}={a}"]))
        ends.wait(10)
        return write(*arguments)

    async def look(self: Health, *arguments: Any) -> Any:
        seen.append(node.reasons()[a] is None)
        return await checked(self, *arguments)

    monkeypatch.setattr(Health, "check", look)
    with monkeypatch.context() as patched:
        patched.setattr(writer, "write", refuse)
        await kubelet.remove_pod(pod)
        await kubelet.until(lambda: "spec" in str(node.reasons()[a]), 10, "it does not wait for its spec")
        await check(node)
        assert "spec" in str(node.reasons()[a])
        assert seen
        assert not any(seen)
        ends.set()
    # A failed write is repeated after a pause.
    while node.reasons()[a] is not None:
        await check(node)
        await asyncio.sleep(0.05)
    await has(kubelet, OLD, {a: "Healthy"})
    assert given(node.folder) == {a: "/dev/zero"}


async def test_one_node_after_the_other_makes_no_other_device_either(
    node: Node, kubelet: StandInKubelet, links: Links
) -> None:
    """A stick with a node that stays, such as /dev/kvm beside it, goes, and another one comes."""
    links.lead(a="/dev/null")
    await node.start(resource(OLD, {"id": "a", "nodes": [{"path": str(links.folder / "a")}, {"path": "/dev/full"}]}))
    pod = await hold(kubelet, OLD)
    (links.folder / "a").unlink()
    await check(node)
    links.lead(a="/dev/zero")
    await check(node)
    assert node.reasons() == {"a": MOVED % (OLD, "/dev/null, /dev/full", "/dev/zero, /dev/full")}
    await kubelet.remove_pod(pod)
    await has(kubelet, OLD, {"a": "Healthy"})


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_part_of_a_held_device_is_no_free_device_by_another_id(
    node: Node, kubelet: StandInKubelet, restarts: bool
) -> None:
    await node.start(resource(OLD, {"id": "a", "nodes": [{"path": "/dev/null"}, {"path": "/dev/full"}]}))
    pod = await hold(kubelet, OLD)
    declared = resource(OLD, device("a", "/dev/full"), device("b", "/dev/null"))
    await (restart(node, kubelet, declared) if restarts else node.apply(declared))
    await has(kubelet, OLD, {"a": "Healthy", "b": "Unhealthy"})
    assert node.reasons() == {"a": None, "b": HELD % OLD}
    await check(node)
    assert node.reasons() == {"a": None, "b": HELD % OLD}
    await kubelet.remove_pod(pod)
    await has(kubelet, OLD, {"a": "Healthy", "b": "Healthy"})


async def test_a_spec_that_was_pruned_is_no_reboot(node: Node, kubelet: StandInKubelet, links: Links) -> None:
    links.lead(a="/dev/null")
    declared = {**links.discovered, "injection": "device_nodes"}
    await node.start(declared, resource(NEW, device("full0", "/dev/full")))
    await hold(kubelet, OLD)
    await node.apply(declared)
    assert node.resources is not None
    await node.resources.prune()
    assert not os.listdir(node.folder / "cdi")
    await node.stop()
    await kubelet.disconnected(OLD)
    links.lead(a="/dev/zero")
    await node.start(declared)
    assert node.reasons() == {links.id_of("a"): MOVED % (OLD, "/dev/null", "/dev/zero")}


@pytest.mark.parametrize("name", [OLD, NEW])
async def test_a_removed_device_becomes_no_other_device(node: Node, kubelet: StandInKubelet, name: str) -> None:
    """With its resource, or alone."""
    path = made(node.folder / "ttyUSB0", 1, 3)
    await node.start(resource(OLD, device("a", path), ZERO))
    await hold(kubelet, OLD, 2)
    await node.apply(resource(name, device("full0", "/dev/full")))
    assert names_in(node.folder) == {"a", "zero0", "full0"}
    os.unlink(path)
    made(node.folder / "ttyUSB0", 1, 5)
    await check(node)
    assert names_in(node.folder) == {"zero0", "full0"}


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_name_whose_path_has_another_device_stays_closed_until_its_device_is_back(
    node: Node, kubelet: StandInKubelet, restarts: bool
) -> None:
    path = made(node.folder / "ttyUSB0", 1, 3)
    declared = resource(OLD, device("a", path))
    await node.start(declared)
    await hold(kubelet, OLD)
    os.unlink(path)
    made(node.folder / "ttyUSB0", 1, 5)
    await check(node)
    if restarts:
        await restart(node, kubelet, declared)
    assert given(node.folder) == {"a": path + CLOSED}
    assert node.reasons() == {"a": f"{HELD % OLD} with {path}: another device has this path now"}
    os.unlink(path)
    made(node.folder / "ttyUSB0", 1, 3)
    await check(node)
    await has(kubelet, OLD, {"a": "Healthy"})
    assert given(node.folder) == {"a": path}


async def test_a_record_that_cannot_be_read_is_as_none(
    node: Node, kubelet: StandInKubelet, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    links.lead(a="/dev/null")
    await node.start(links.discovered)
    await hold(kubelet, OLD)
    await node.stop()
    await kubelet.disconnected(OLD)
    links.lead(a="/dev/zero")

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(record, "load", fail)
    await node.start(links.discovered)
    assert node.reasons() == {links.id_of("a"): MOVED % (OLD, "/dev/null", "/dev/zero")}
    assert given(node.folder) == {links.id_of("a"): "/dev/null"}


@pytest.mark.parametrize("runs", [False, True])
async def test_a_prune_of_a_former_directory_keeps_the_record_of_a_running_plugin(
    node: Node, kubelet: StandInKubelet, tmp_path: Path, runs: bool
) -> None:
    await node.start(resource(OLD, NULL))
    await kubelet.registered(OLD)
    # Of a plugin that was killed.
    (node.folder / "dp" / "node-device-plugin" / ".given.json.x").touch()
    await node.stop()
    running = SingleInstance()
    if runs:
        running.take(str(node.folder / "dp"))
    command = ["cdi", "prune", "--dir", str(tmp_path), "--kubelet-root", str(node.folder)]
    command += ["--device-plugin-dir", str(node.folder / "dp")]
    assert await asyncio.to_thread(main, command) == 0
    assert (node.folder / "dp" / "node-device-plugin" / record.FILE_NAME).exists() is runs
    assert (node.folder / "dp" / "node-device-plugin").exists() is runs
    running.release()


async def test_a_record_that_cannot_be_written_is_told_once(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(record, "save", fail)
        await node.start(resource(OLD, NULL))
        await has(kubelet, OLD, {"null0": "Healthy"})
        for _ in range(3):
            await check(node)
        told = [each for each in caplog.records if "cannot record" in each.getMessage()]
        assert len(told) == 1
    await check(node)
    assert (node.folder / "dp" / "node-device-plugin" / record.FILE_NAME).exists()


async def test_a_holder_is_not_forgotten_before_the_kubelet_was_asked(
    node: Node, kubelet: StandInKubelet, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plugin asks every 30 s, if nothing is in doubt; an admission takes less."""
    monkeypatch.setattr(resource_manager, "SWEEP", 600.0)
    monkeypatch.setattr("node_device_plugin.devices.given._ADMISSION", 0.0)
    links.lead(a="/dev/null")
    await node.start(resource(OLD, {"id": "a", "nodes": [{"path": str(links.folder / "a")}, {"path": "/dev/full"}]}))
    await hold(kubelet, OLD)
    (links.folder / "a").unlink()
    await check(node)
    links.lead(a="/dev/zero")
    await check(node)
    assert node.reasons() == {"a": MOVED % (OLD, "/dev/null, /dev/full", "/dev/zero, /dev/full")}


async def test_a_path_that_hangs_hides_no_change_of_another_resource(
    node: Node, kubelet: StandInKubelet, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that is gone is known by its recorded path; so is a mount of another resource, which hangs."""
    path = made(node.folder / "ttyUSB0", 1, 3)
    links.lead(a=path)
    other = resource(NEW, device("full0", "/dev/full"))
    await node.start(links.discovered, other)
    for name in (OLD, NEW):
        await hold(kubelet, name, pod=name.partition("/")[2])
    await node.apply(links.discovered)
    assert node.resources is not None
    scanner = node.resources._scanner
    monkeypatch.setattr(scanner, "_calls", BoundedCalls(1))
    ends, read = threading.Event(), scanner._identities.read

    def hang(paths: Any) -> Any:
        if "/dev/full" in paths:
            ends.wait(30)
        return read(paths)

    monkeypatch.setattr(scanner._identities, "read", hang)
    (links.folder / "a").unlink()
    os.unlink(path)
    made(node.folder / "ttyUSB0", 1, 5)
    await check(node)
    assert any(path + CLOSED in file.read_text() for file in (node.folder / "cdi").iterdir())
    ends.set()


async def test_another_plugin_keeps_a_resource_while_the_kubelet_does_not_answer(
    node: Node, kubelet: StandInKubelet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node goes over to a vendor's plugin while a pod still holds a device from ours."""
    await node.start(resource(OLD, NULL))
    await hold(kubelet, OLD)
    await node.stop()
    await kubelet.disconnected(OLD)
    (others,) = parse_configuration({"resources": [resource(OLD, NULL, ZERO, injection="device_nodes")]}).resources
    socket = KubeletSocket(kubelet.directory)
    async with kept_registered([others], lambda service: Registration(service, socket)):
        await has(kubelet, OLD, {"null0": "Healthy", "zero0": "Healthy"})

        async def silent(*_: object) -> None:
            raise PodResourcesError("kubelet.sock", "List", grpc.StatusCode.DEADLINE_EXCEEDED, "no answer")

        asked = len(kubelet.manager.clients.asked)
        with monkeypatch.context() as patched:
            patched.setattr(queries, "_listed", silent)
            await node.start(resource(NEW, device("full0", "/dev/full")))
            await kubelet.registered(NEW)
            assert node.resources is not None
            await node.resources.ask_for_holders()
        await node.resources.ask_for_holders()
        await asyncio.sleep(0.3)
        assert kubelet.devices(OLD) == {"null0": "Healthy", "zero0": "Healthy"}
        assert len(kubelet.manager.clients.asked) == asked + 1
        await node.stop()
    socket.close()


async def test_an_instance_that_follows_registers_no_removed_resource(node: Node, kubelet: StandInKubelet) -> None:
    """From Kubernetes 1.37 on, its list would replace the list of the leader, which still has the resource."""
    await node.start(resource(OLD, NULL))
    await hold(kubelet, OLD)
    assert node.resources is not None
    node.resources._scanner.writes = False
    await node.apply()
    await kubelet.disconnected(OLD)
    # Once it leads, it keeps the resource for the pod.
    await node.resources.take_over()
    await has(kubelet, OLD, {"null0": "Unhealthy"})


async def test_an_instance_that_takes_over_still_knows_what_it_gave(
    node: Node, kubelet: StandInKubelet, links: Links
) -> None:
    """Its configuration may be newer than that of the leader, which kept the record."""
    links.lead(a="/dev/null")
    await node.start()
    assert node.resources is not None
    node.resources._scanner.writes = False
    await node.apply({**links.discovered, "injection": "device_nodes"})
    await hold(kubelet, OLD)
    links.lead(a="/dev/zero")
    await check(node)
    await node.resources.take_over()
    assert node.reasons() == {links.id_of("a"): MOVED % (OLD, "/dev/null", "/dev/zero")}
