"""What a container was given stays its own until it ends: after a link moved, a re-plug, a restart, a removal."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from kubelet_stand_in import StandInKubelet
from kubelet_stand_in.stand_in import PodRejected
from node_device_plugin.cli.main import main
from node_device_plugin.devices import record
from node_device_plugin.devices.discovery import Discoverer
from node_device_plugin.devices.given import MET
from node_device_plugin.devices.identity import Identities

from ..devices.discovery.conftest import Machine
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
    frontend_of,
    given,
    has,
    hold,
    made,
    resource,
    restart,
    why_changed,
)


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_held_link_that_moves_gives_nobody_the_device_a_second_time(
    node: Node, kubelet: StandInKubelet, links: Links, restarts: bool
) -> None:
    """systemd#31448: a by-id link moves to another disk, and a second link moves to the first disk."""
    links.lead(a="/dev/null", b="/dev/zero")
    a, b = links.id_of("a"), links.id_of("b")
    await node.start(links.discovered)
    await has(kubelet, OLD, {a: "Healthy", b: "Healthy"})
    pod = await hold(kubelet, OLD)
    (held,) = kubelet.checkpoint().pod_devices[0].device_ids  # type: ignore[union-attr]
    first, second = ("/dev/null", "/dev/zero") if held == a else ("/dev/zero", "/dev/null")
    if restarts:
        await node.stop()
        await kubelet.disconnected(OLD)
    links.lead(a="/dev/zero", b="/dev/null")
    if restarts:
        await node.start(links.discovered)
    else:
        await check(node)
    other = b if held == a else a
    await has(kubelet, OLD, {a: "Unhealthy", b: "Unhealthy"})
    assert node.reasons() == {held: MOVED % (OLD, first, second), other: HELD % OLD}
    assert given(node.folder)[held] == first
    with pytest.raises(PodRejected):
        await kubelet.allocate_pod("thief", {"main": {OLD: 1}})
    await kubelet.remove_pod(pod)
    await has(kubelet, OLD, {a: "Healthy", b: "Healthy"})
    assert given(node.folder) == {a: "/dev/zero", b: "/dev/null"}


async def test_a_link_that_moves_back_is_the_held_device_again(
    node: Node, kubelet: StandInKubelet, links: Links
) -> None:
    links.lead(a="/dev/null")
    await node.start(links.discovered)
    await hold(kubelet, OLD)
    links.lead(a="/dev/zero")
    await check(node)
    await has(kubelet, OLD, {links.id_of("a"): "Unhealthy"})
    links.lead(a="/dev/null")
    await check(node)
    await has(kubelet, OLD, {links.id_of("a"): "Healthy"})


async def test_a_free_link_that_moves_is_offered_with_its_new_device(
    node: Node, kubelet: StandInKubelet, links: Links
) -> None:
    links.lead(a="/dev/null")
    await node.start(links.discovered)
    await has(kubelet, OLD, {links.id_of("a"): "Healthy"})
    links.lead(a="/dev/zero")
    await check(node)
    await has(kubelet, OLD, {links.id_of("a"): "Healthy"})
    assert given(node.folder) == {links.id_of("a"): "/dev/zero"}


async def test_a_device_that_comes_back_on_another_node_stays_the_device_of_its_pod(
    node: Node, kubelet: StandInKubelet, links: Links
) -> None:
    first = made(node.folder / "ttyUSB0", 1, 3)
    links.lead(a=first)
    await node.start(links.discovered)
    await hold(kubelet, OLD)
    os.unlink(first)
    second = made(node.folder / "ttyUSB1", 1, 3)
    links.lead(a=second)
    await check(node)
    assert node.reasons() == {links.id_of("a"): None}
    assert given(node.folder) == {links.id_of("a"): second}


async def test_another_device_at_the_path_of_a_held_one_that_is_gone_reaches_no_container(
    node: Node, kubelet: StandInKubelet, links: Links
) -> None:
    """A stick is unplugged, and another stick gets its node: the first one's container must not get it at a restart."""
    path = made(node.folder / "ttyUSB0", 1, 3)
    links.lead(a=path)
    await node.start(links.discovered)
    pod = await hold(kubelet, OLD)
    (links.folder / "a").unlink()
    os.unlink(path)
    made(node.folder / "ttyUSB0", 1, 5)
    links.lead(b=path)
    await check(node)
    a, b = links.id_of("a"), links.id_of("b")
    await has(kubelet, OLD, {a: "Unhealthy", b: "Healthy"})
    assert given(node.folder) == {a: path + " (another device has this path now)", b: path}
    # It gets the first stick again once this is back, wherever that is.
    back = made(node.folder / "ttyUSB1", 1, 3)
    links.lead(a=back)
    await check(node)
    await has(kubelet, OLD, {a: "Healthy", b: "Healthy"})
    assert given(node.folder) == {a: back, b: path}
    await kubelet.remove_pod(pod)


@pytest.mark.parametrize("reboot", ["boot id", "specs"])
async def test_after_a_reboot_the_id_alone_decides(
    node: Node, kubelet: StandInKubelet, links: Links, reboot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet rejects a pod whose device is unhealthy when the node comes back: renumbering must cost no pod."""
    links.lead(a="/dev/null")
    await node.start(links.discovered)
    await hold(kubelet, OLD)
    await node.stop()
    await kubelet.disconnected(OLD)
    links.lead(a="/dev/zero")
    if reboot == "boot id":
        monkeypatch.setattr(record, "_boot_id", lambda: "another")
    else:
        # A container that acts as a node keeps its kernel's boot id, and loses /run.
        for file in (node.folder / "cdi").iterdir():
            file.unlink()
    await node.start(links.discovered)
    await has(kubelet, OLD, {links.id_of("a"): "Healthy"})
    assert given(node.folder) == {links.id_of("a"): "/dev/zero"}


@pytest.mark.parametrize("injection", ["cdi", "device_nodes"])
async def test_without_a_record_the_spec_or_the_checkpoint_tells_what_was_given(
    node: Node, kubelet: StandInKubelet, links: Links, injection: str
) -> None:
    """An upgrade from a version that kept no record."""
    links.lead(a="/dev/null")
    declared = {**links.discovered, "injection": injection}
    await node.start(declared)
    await hold(kubelet, OLD)
    await node.stop()
    await kubelet.disconnected(OLD)
    (node.folder / "dp" / "node-device-plugin" / record.FILE_NAME).unlink()
    links.lead(a="/dev/zero")
    await node.start(declared)
    await has(kubelet, OLD, {links.id_of("a"): "Unhealthy"})
    assert node.reasons() == {links.id_of("a"): MOVED % (OLD, "/dev/null", "/dev/zero")}
    if injection == "cdi":
        assert given(node.folder) == {links.id_of("a"): "/dev/null"}


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"boot_id": 1}', '{"boot_id": "%s", "has_specs": false, "offers": 5}']
)
async def test_a_record_in_another_format_counts_as_none(node: Node, kubelet: StandInKubelet, content: str) -> None:
    file = node.folder / "dp" / "node-device-plugin" / record.FILE_NAME
    file.parent.mkdir()
    file.write_text(content.replace("%s", record._boot_id()))
    await node.start(resource(OLD, NULL))
    await has(kubelet, OLD, {"null0": "Healthy"})
    assert json.loads(file.read_text())["offers"][OLD]["null0"][1] == [["/dev/null", "char/1:3", "", ""]]


async def test_a_container_that_gets_its_paths_again_starts_only_with_the_same_device(
    node: Node, kubelet: StandInKubelet, links: Links
) -> None:
    """With device_nodes, the kubelet repeats the path itself."""
    path = made(node.folder / "ttyUSB0", 1, 3)
    links.lead(a=path)
    await node.start({**links.discovered, "injection": "device_nodes"})
    await hold(kubelet, OLD)
    ids = [links.id_of("a")]
    assert kubelet.manager.endpoints[OLD].options.pre_start_required
    assert await why_changed(node, ids) is None
    os.unlink(path)
    made(node.folder / "ttyUSB0", 1, 5)
    # No scan has seen it yet.
    changed = str(await why_changed(node, ids))
    assert changed.startswith(f"the container would get {path} again, which is another device now: delete the pod")
    # The device itself came back elsewhere: the container would still get the other one.
    links.lead(a=made(node.folder / "ttyUSB1", 1, 3))
    await check(node)
    assert await why_changed(node, ids) == changed


async def test_two_links_of_one_node_are_one_device_too_many(node: Node, kubelet: StandInKubelet, links: Links) -> None:
    links.lead(a="/dev/null", b="/dev/zero")
    a, b = str(links.folder / "a"), str(links.folder / "b")
    await node.start(resource(OLD, device("a", a), device("b", b)))
    await has(kubelet, OLD, {"a": "Healthy", "b": "Healthy"})
    links.lead(b="/dev/null")
    await check(node)
    await has(kubelet, OLD, {"a": "Healthy", "b": "Unhealthy"})
    assert node.reasons()["b"] == f"{MET}: {b} and {a} of {OLD}=a lead to /dev/null: declare one device"
    await hold(kubelet, OLD)
    links.lead(b="/dev/zero")
    await check(node)
    await has(kubelet, OLD, {"a": "Healthy", "b": "Healthy"})


async def test_shares_of_one_node_by_two_paths_are_no_problem(
    node: Node, kubelet: StandInKubelet, links: Links
) -> None:
    links.lead(a="/dev/null", b="/dev/null")
    declared = [device(name, str(links.folder / name)) for name in "ab"]
    await node.start(resource(OLD, *declared, replicas=2))
    await has(kubelet, OLD, dict.fromkeys(["a::0", "a::1", "b::0", "b::1"], "Healthy"))


@pytest.mark.parametrize("injection", ["cdi", "device_nodes"])
@pytest.mark.parametrize("restarts", [False, True])
async def test_a_removed_resource_stays_registered_until_its_pods_end(
    node: Node, kubelet: StandInKubelet, injection: str, restarts: bool
) -> None:
    """The kubelet restarts no container of a resource that has been gone for 5 minutes."""
    await node.start(resource(OLD, NULL, ZERO, injection=injection))
    pod = await hold(kubelet, OLD)
    (held,) = kubelet.checkpoint().pod_devices[0].device_ids  # type: ignore[union-attr]
    if restarts:
        await node.stop()
        await kubelet.disconnected(OLD)
        await node.start(resource(NEW, device("full0", "/dev/full")))
    else:
        await node.apply(resource(NEW, device("full0", "/dev/full")))
    await kubelet.until(lambda: kubelet.devices(OLD) == {held: "Unhealthy"}, 10, "it is not listed alone")
    await kubelet.registered(OLD)
    assert kubelet.manager.endpoints[OLD].stopped_at is None
    # The plugin may end without keeping a container from its start.
    assert not kubelet.manager.endpoints[OLD].options.pre_start_required
    await kubelet.remove_pod(pod)
    await kubelet.disconnected(OLD)
    await has(kubelet, NEW, {"full0": "Healthy"})


async def test_a_resource_that_comes_back_while_its_pod_runs_is_as_before(node: Node, kubelet: StandInKubelet) -> None:
    await node.start(resource(OLD, NULL, ZERO))
    await hold(kubelet, OLD)
    await node.apply()
    await kubelet.until(lambda: "Healthy" not in kubelet.devices(OLD).values(), 10, "a device is free")
    await node.apply(resource(OLD, NULL, ZERO))
    await has(kubelet, OLD, {"null0": "Healthy", "zero0": "Healthy"})


async def test_what_was_allocated_a_moment_ago_counts_as_held(
    node: Node, kubelet: StandInKubelet, links: Links, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet lists a pod only after it has the plugin's answer."""
    links.lead(a="/dev/null")
    await node.start(links.discovered)
    await kubelet.registered(OLD)
    assert node.resources is not None
    (table,) = node.resources.tables
    frontend_of(node).allocated(table.resource, [links.id_of("a")])
    links.lead(a="/dev/zero")
    await check(node)
    reason = str(node.reasons()[links.id_of("a")])
    assert reason.startswith("held by a pod that the kubelet is admitting")
    monkeypatch.setattr("node_device_plugin.devices.given._ADMISSION", 0.0)
    await kubelet.until(lambda: node.reasons() == {links.id_of("a"): None}, 10, "it stays withheld")


@pytest.mark.parametrize("held", [False, True])
async def test_a_record_goes_with_the_plugin_unless_a_pod_holds_a_recorded_device(
    node: Node, kubelet: StandInKubelet, held: bool
) -> None:
    own = node.folder / "dp" / "node-device-plugin"
    await node.start(resource(OLD, NULL))
    pod = await hold(kubelet, OLD)
    if not held:
        await kubelet.remove_pod(pod)
    await node.stop()
    command = ["cdi", "prune", "--dir", str(node.folder / "cdi"), "--kubelet-root", str(node.folder)]
    command += ["--device-plugin-dir", str(node.folder / "dp")]
    assert await asyncio.to_thread(main, command) == 0
    assert own.exists() is held
    assert not held or os.listdir(own) == [record.FILE_NAME]


async def test_a_stick_whose_ids_change_at_its_port_stays_the_device_of_its_pod(node: Node, tmp_path: Path) -> None:
    """edgetpu#536: a Coral stick gets other ids when its firmware is loaded on first use."""
    machine = Machine(tmp_path)
    directory = "pci0000:00/0000:00:14.0/usb1/1-2"

    def plug(vendor: str, product: str, devnum: int) -> None:
        path = f"bus/usb/001/{devnum:03d}"
        machine.on_bus("usb", directory, idVendor=vendor, idProduct=product, devname=path)
        node_path = tmp_path / "dev" / path
        node_path.unlink()
        made(node_path, 189, devnum)

    selectors = [{"vendor": "1a6e", "product": "089a"}, {"vendor": "18d1", "product": "9302"}]
    plug("1a6e", "089a", 5)
    await node.start()
    assert node.resources is not None
    scanner = node.resources._scanner
    scanner._discoverer = Discoverer(scanner.links, str(tmp_path))
    scanner._identities = Identities(str(tmp_path))
    await node.apply({"name": OLD, "discover": {"usb": selectors, "identify_by": "port"}})
    (before,) = node.resources.tables[0].resource.devices
    frontend_of(node).allocated(node.resources.tables[0].resource, [before.id])
    (tmp_path / "dev/bus/usb/001/005").unlink()
    plug("18d1", "9302", 6)
    await check(node)
    (after,) = node.resources.tables[0].resource.devices
    assert (after.id, after.nodes[0].host_path) == (before.id, "/dev/bus/usb/001/006")
    assert given(node.folder) == {before.id: "/dev/bus/usb/001/006"}
    assert "held" not in str(node.resources.tables[0].reason(after))
    # Another stick at another port is another device.
    assert before.identity == after.identity == "usb port 0000:00:14.0-2"


async def test_a_discovered_device_that_goes_is_missed_until_an_operator_accepts_it_or_it_comes_back(
    node: Node, kubelet: StandInKubelet, links: Links
) -> None:
    links.lead(a="/dev/null", b="/dev/zero", c="/dev/full")
    ids = [links.id_of(name) for name in "abc"]
    await node.start(links.discovered)
    await has(kubelet, OLD, dict.fromkeys(ids, "Healthy"))
    assert node.resources is not None
    assert node.resources.missed(OLD) == {}
    for name in "bc":
        (links.folder / name).unlink()
    await check(node)
    assert node.resources.missed(OLD) == {ids[1]: "gone", ids[2]: "gone"}
    # A plugin that starts later has never seen them.
    await restart(node, kubelet, links.discovered)
    assert node.resources is not None
    assert node.resources.missed(OLD) == {ids[1]: "gone", ids[2]: "gone"}
    links.lead(b="/dev/zero")
    await check(node)
    assert node.resources.missed(OLD) == {ids[2]: "gone"}
    await node.resources.forget_lost()
    assert node.resources.missed(OLD) == {}
    await restart(node, kubelet, links.discovered)
    assert node.resources is not None
    assert node.resources.missed(OLD) == {}


async def test_what_another_selector_does_not_find_is_not_missed(
    node: Node, kubelet: StandInKubelet, links: Links
) -> None:
    links.lead(a="/dev/null", b="/dev/zero")
    await node.start(links.discovered)
    await kubelet.registered(OLD)
    await node.apply({"name": OLD, "discover": {"paths": [str(links.folder / "a")]}})
    await check(node)
    assert node.resources is not None
    assert node.resources.missed(OLD) == {}


async def test_a_second_node_of_the_same_number_is_not_the_held_device_that_is_gone(
    node: Node, kubelet: StandInKubelet, links: Links
) -> None:
    first, second = made(node.folder / "lamp0", 1, 3), made(node.folder / "lamp1", 1, 3)
    links.lead(a=first)
    await node.start(links.discovered)
    await hold(kubelet, OLD)
    links.lead(b=second)
    await check(node)
    await has(kubelet, OLD, {links.id_of("a"): "Healthy", links.id_of("b"): "Healthy"})
    (links.folder / "a").unlink()
    os.unlink(first)
    await check(node)
    await has(kubelet, OLD, {links.id_of("a"): "Unhealthy", links.id_of("b"): "Healthy"})


async def test_a_plugin_without_resources_leaves_no_record_unless_a_pod_holds_a_device(
    node: Node, kubelet: StandInKubelet
) -> None:
    """An uninstall that reaches the node by the Kubernetes API alone runs no command there."""
    file = node.folder / "dp" / "node-device-plugin" / record.FILE_NAME
    await node.start(resource(OLD, NULL))
    pod = await hold(kubelet, OLD)
    await node.apply()
    assert file.exists()
    await kubelet.remove_pod(pod)
    await kubelet.until(lambda: not file.exists(), 10, "the record stays")
