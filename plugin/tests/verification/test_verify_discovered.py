"""What is discovered, as a verification expects it of the kubelet and of a container."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional

import pytest

from node_device_plugin.cdi.directories import check_directories
from node_device_plugin.cdi.resolution import Resolution
from node_device_plugin.declaration import cdi, parse_resources
from node_device_plugin.devices.discovery import Discoverer
from node_device_plugin.devices.given import IN_DOUBT
from node_device_plugin.kubelet import queries as kubelet_queries
from node_device_plugin.kubelet.pod_resources import Holder, Listing
from node_device_plugin.verification.container_view import expected_in_container
from node_device_plugin.verification.report import Report

from .fake_node import VERIFY, FakeNode

LAMP = {
    "name": "example.com/lamp",
    "discover": {"paths": ["/dev/lamp*"]},
    "devices": [{"id": "first", "nodes": [{"path": "/dev/first"}]}],
    "env": {"LAMP_{index}": "{id}"},
}


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNode:
    """With its device nodes below the test's directory."""
    monkeypatch.setattr(VERIFY, "Discoverer", lambda links: Discoverer(links, str(tmp_path)))
    monkeypatch.setattr("node_device_plugin.verification.expected.problem_of", lambda *_: None)
    return FakeNode(monkeypatch, tmp_path, {})


async def verified(node: FakeNode, allocatable: Sequence[str], timeout: float = 0.0) -> Report:
    node.allocatable = {"example.com/lamp": tuple(allocatable)}
    return await node.verify(LAMP, devices="all", timeout=timeout)


def plug(tmp_path: Path, *names: str) -> None:
    (tmp_path / "dev").mkdir(exist_ok=True)
    for name in names:
        (tmp_path / "dev" / name).touch()


async def test_what_is_discovered_is_expected_beside_what_is_declared(node: FakeNode, tmp_path: Path) -> None:
    plug(tmp_path, "lamp10", "lamp2")
    report = await verified(node, ["lamp2", "first", "lamp10"])
    (row,) = report.rows
    assert (row.capacity, row.healthy, row.state, report.problems) == (3, 3, "proven", [])
    assert row.seen == ("first", "lamp2", "lamp10")
    assert node.asked == ["example.com/lamp 3"]


async def test_what_the_kubelet_lacks_of_what_is_discovered_or_has_beyond_it_is_named(
    node: FakeNode, tmp_path: Path
) -> None:
    plug(tmp_path, "lamp0", "lamp1")
    report = await verified(node, ["first", "lamp0", "lamp7"])
    says = "expected 3 healthy devices with the kubelet, found 3 (missing: lamp1) (not declared: lamp7)"
    assert report.problems == ["example.com/lamp: " + says]
    assert [(row.state, row.detail) for row in report.rows] == [("failed", says)]
    assert node.asked == []


async def test_what_a_pod_holds_of_what_is_discovered_is_left_to_it(node: FakeNode, tmp_path: Path) -> None:
    plug(tmp_path, "lamp0")
    node.holders = [Holder("default", "viewer", "main", "example.com/lamp", ("lamp0",))]
    assert (await verified(node, ["first", "lamp0"])).problems == []
    assert node.asked == ["example.com/lamp 1"]


async def test_a_kubelet_that_needs_a_moment_for_what_was_plugged_in_gets_it(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    plug(tmp_path, "lamp0")
    listing = kubelet_queries.listing

    async def later(root: str, directory: str) -> Listing:
        if node.lists == 2:
            node.allocatable["example.com/lamp"] = ("first", "lamp0")
        return await listing(root, directory)

    monkeypatch.setattr(kubelet_queries, "listing", later)
    report = await verified(node, ["first"], timeout=30.0)
    # The fourth list is the one before the pod.
    assert (node.lists, report.problems) == (4, [])


async def test_what_a_pod_holds_by_another_name_is_in_use_and_proves_nothing(node: FakeNode, tmp_path: Path) -> None:
    """Nor is it missed; and it may have come free since."""
    plug(tmp_path, "lamp0")
    why = "held by default/own as example.com/old"
    device = {"id": "lamp0", "reason": why, "withheld": True}
    others = {"id": "first", "reason": None, "withheld": False}
    resource = {"name": "example.com/lamp", "registered": True, "devices": [others, device]}
    node.plugin = {"resources": [resource]}
    for listed in (["first"], ["first", "lamp0"]):
        report = await verified(node, listed)
        says = f"lamp0: {why}"
        assert [(row.state, row.detail) for row in report.rows] == [("in use", says)]
        assert (report.problems, node.asked, report.proven) == ([], [], {})
    # Nor does the container of another device of the resource prove it.
    node.holds("app", [], "first")
    (row,) = (await verified(node, ["first"])).rows
    assert (row.state, row.seen, row.capacity) == ("in use", (), 1)


async def test_a_doubt_of_the_plugin_is_waited_for(node: FakeNode, tmp_path: Path) -> None:
    """It lasts until the kubelet has told the plugin who holds the device."""
    plug(tmp_path, "lamp0")
    device = {"id": "lamp0", "reason": IN_DOUBT, "withheld": True}
    resource = {"name": "example.com/lamp", "registered": True, "devices": [device]}
    node.plugin = {"resources": [resource]}
    report = await verified(node, ["first"])
    says = f"expected 2 healthy devices with the kubelet, found 1 (missing: lamp0); lamp0: {IN_DOUBT}"
    assert [(row.state, row.detail) for row in report.rows] == [("failed", says)]
    ask, asked = node._ask_plugin, []

    async def answered(*_: object) -> dict[str, Any]:
        asked.append(None)
        if len(asked) == 3:
            device["reason"] = "held by default/own as example.com/old"
        return await ask()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("node_device_plugin.status_api.client.ask", answered)
        report = await verified(node, ["first"], timeout=30.0)
    assert ([row.state for row in report.rows], report.problems, len(asked)) == (["in use"], [], 3)


async def test_a_container_must_show_the_nodes_that_another_programs_spec_gives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Of each name, those of the device and those of its kind."""
    names = ["vendor.com/gpu=0", "vendor.com/gpu=all"]
    common = {"deviceNodes": [{"path": "/dev/ctl", "hostPath": "/dev/zero"}]}
    nodes = [{"path": "/dev/gpu0", "hostPath": "/dev/null"}, {"path": "/dev/kfd", "type": "c", "major": 511}]
    nodes += [{"path": "/dev/uvm", "major": 511, "minor": 2}, {"path": "/dev/cap", "type": "c", "minor": 2}]
    devices = [{"name": "0", "containerEdits": {"deviceNodes": nodes}}]
    spec = {"cdiVersion": "0.6.0", "kind": "vendor.com/gpu", "devices": devices, "containerEdits": common}
    (tmp_path / "vendor.json").write_text(json.dumps(spec))
    (declared,) = parse_resources([{"name": "example.com/gpu", "devices": [{"id": "gpu0", "cdi_devices": names}]}])
    known = Resolution(check_directories([str(tmp_path)], None)).with_foreign_nodes(declared)
    expected = expected_in_container(known, known.devices)
    assert [(node.path, node.host_path, node.type, node.major, node.minor) for node in expected.nodes] == [
        ("/dev/gpu0", "/dev/null", None, None, None),
        ("/dev/kfd", "/dev/kfd", "c", 511, 0),
        ("/dev/uvm", "/dev/uvm", None, 511, 2),
        ("/dev/cap", "/dev/cap", None, None, None),
        ("/dev/ctl", "/dev/zero", None, None, None),
    ]
    # Our own spec does not give them.
    assert cdi.render_specs([known]) == {}


@pytest.mark.parametrize(("stream", "state"), [(True, "empty"), (False, "failed"), (None, "failed")])
async def test_a_resource_without_devices_needs_no_write_of_the_checkpoint(
    node: FakeNode, stream: Optional[bool], state: str
) -> None:
    """Of registrations at the same time, the checkpoint may miss some until the kubelet's next write."""
    node.allocatable, node.unwritten = {"example.com/lamp": ()}, {"example.com/lamp"}
    if stream is not None:
        node.plugin = {"resources": [{"name": "example.com/lamp", "registered": stream, "devices": []}]}
    report = await node.verify({"name": "example.com/lamp"})
    assert [row.state for row in report.rows] == [state]
    unknown = "example.com/lamp: expected the resource to be registered with the kubelet, found no such resource"
    assert report.problems == ([] if state == "empty" else [unknown])


async def test_a_checkpoint_is_no_proof_against_a_plugin_without_a_stream(node: FakeNode) -> None:
    node.allocatable = {"example.com/lamp": ()}
    node.plugin = {"resources": [{"name": "example.com/lamp", "registered": False, "devices": []}]}
    report = await node.verify({"name": "example.com/lamp"})
    assert [row.state for row in report.rows] == ["failed"]
