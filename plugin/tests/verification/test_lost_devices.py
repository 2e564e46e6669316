"""A verification fails if a device that somebody counts on is lost, and tells why the others are not offered."""

from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.kubelet import queries
from node_device_plugin.kubelet.losses import Loss
from node_device_plugin.kubelet.pod_resources import PodResourcesError
from node_device_plugin.kubelet.queries import HeldDevice
from node_device_plugin.support.channels import grpc
from node_device_plugin.verification import without_lists
from node_device_plugin.verification.looking import Outcome

from .fake_node import VERIFY, FakeNode

LAMP = "example.com/lamp"


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNode:
    return FakeNode(monkeypatch, tmp_path, {LAMP: []})


def lamp(**others: Any) -> dict[str, Any]:
    return {"name": LAMP, "cdi_kind": "example.com/lamp", "env": {"LAMP_{index}": "x"}, **others}


def plugin(**devices: str) -> dict[str, Any]:
    """The state of a plugin, with the reasons of unhealthy devices."""
    shown = [{"id": name, "reason": why} for name, why in devices.items()]
    return {"resources": [{"name": LAMP, "registered": True, "devices": shown}]}


async def test_optional_devices_that_never_passed_have_their_reason(node: FakeNode) -> None:
    """The inputs of podman#26233: the node is another device, or the source of a mount is missing."""
    other = {"path": "/dev/opt0", "host_path": "/dev/zero", "major": 99}
    mount = {"mounts": ["/opt/nowhere:/opt/nowhere"]}
    devices = [
        {"id": "opt0", "required": False, "nodes": [other]},
        {"id": "opt1", "required": False, "nodes": ["/dev/full"], "container_edits": mount},
    ]
    report = await node.verify(lamp(devices=devices))
    (row,) = report.rows
    reasons = (
        "opt0: /dev/zero: expected any 99:any, found c 1:5",
        "opt1: /opt/nowhere: the mount of its CDI spec does not exist, so no container with example.com/lamp=opt1 "
        "starts: create it, or change the declaration",
    )
    assert (row.state, row.detail, row.absent, report.problems) == ("empty", "", reasons, [])
    assert f"empty (without {'; without '.join(reasons)})" in report.to_text()


async def test_a_missing_required_device_has_the_plugins_reason(node: FakeNode) -> None:
    devices = [{"id": "l0", "nodes": ["/dev/null"]}, {"id": "l1", "nodes": ["/dev/none"]}]
    node.plugin = plugin(l0="the health command says: no firmware", l1="/dev/none: not yet")
    report = await node.verify(lamp(devices=devices))
    counted = "expected 2 healthy devices with the kubelet, found 0 (missing: l0 l1)"
    says = f"{LAMP}: {counted}; l0: the health command says: no firmware; l1: /dev/none: not yet"
    assert report.problems == [says]
    node.plugin = None
    assert (await node.verify(lamp(devices=devices))).problems == [
        f"{LAMP}: {counted}; l1: /dev/none: No such file or directory"
    ]


async def test_a_missing_mount_of_a_required_device_is_the_reason(node: FakeNode) -> None:
    edits = {"mounts": [{"host_path": "/etc/nope", "container_path": "/etc/nope", "options": ["ro"]}]}
    report = await node.verify(lamp(devices=[{"id": "l0", "nodes": ["/dev/null"]}], container_edits=edits))
    (problem,) = report.problems
    assert "(missing: l0); l0: /etc/nope: the mount of its CDI spec does not exist" in problem


async def test_an_optional_device_that_a_pod_holds_is_expected(node: FakeNode) -> None:
    devices = [{"id": "l0", "required": False, "nodes": ["/dev/none"]}]
    assert (await node.verify(lamp(devices=devices))).problems == []
    node.held = [HeldDevice(LAMP, "l0", "default", "app", "main")]
    (row,) = (await node.verify(lamp(devices=devices))).rows
    assert (row.state, row.capacity) == ("failed", 1)
    assert row.detail == (
        "expected 1 healthy devices with the kubelet, found 0 (missing: l0); l0: default/app holds it, but it is "
        "lost: /dev/none: No such file or directory"
    )


async def test_a_gpu_whose_spec_is_gone_while_a_pod_holds_it_fails(node: FakeNode, tmp_path: Path) -> None:
    """The table said "empty", with exit code 0."""
    name = "nvidia.com/gpu=GPU-1"
    node.held = [HeldDevice(LAMP, "GPU-1", "default", "app", "main", cdi_names=(name,))]
    report = await node.verify(lamp(discover={"cdi": {"kind": "nvidia.com/gpu"}}))
    (row,) = report.rows
    says = "GPU-1: default/app holds it, but it is lost: the plugin no longer finds the device, and the CDI name"
    assert (row.state, row.detail[: len(says)], len(report.problems)) == ("failed", says, 1)


async def test_a_number_of_devices_can_be_required(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pattern = f"{tmp_path}/lamp*"
    for name in ("lamp0", "lamp1"):
        (tmp_path / name).symlink_to("/dev/null" if name == "lamp0" else "/dev/zero")
    node.allocatable = {LAMP: ("lamp0", "lamp1")}
    monkeypatch.setattr("node_device_plugin.devices.discovery.device_id", lambda name, _room: name[-5:])
    report = await node.verify(lamp(discover={"paths": [pattern]}, min_devices=2))
    assert (report.problems, report.rows[0].state) == ([], "proven")
    report = await node.verify(lamp(discover={"paths": [pattern]}, min_devices=3))
    says = "expected at least 3 devices (min_devices), found 2"
    assert report.problems == [f"{LAMP}: {says}"]
    assert [(row.state, row.detail) for row in report.rows] == [("failed", says)]
    assert node.asked == [f"{LAMP} 1"]


async def test_without_a_kubelet_the_number_counts_too(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    async def listing(*_: object) -> Any:
        raise PodResourcesError("/none.sock", "list pods", grpc.StatusCode.UNAVAILABLE, "gone")

    async def prove(*_: object) -> Outcome:
        return Outcome()

    monkeypatch.setattr(queries, "listing", listing)
    monkeypatch.setattr(without_lists, "prove_by_runtime", prove)
    report = await node.verify(lamp(discover={"paths": ["/nowhere/*"]}, min_devices=1))
    assert report.problems == [f"{LAMP}: expected at least 1 device (min_devices), found 0"]
    assert [row.state for row in report.rows] == ["failed"]


async def test_a_pod_without_the_device_that_it_requests_fails(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unserved(*_: object) -> list[Loss]:
        return [Loss(LAMP, "", "default/hold runs without a device")]

    monkeypatch.setattr(VERIFY, "unserved", unserved)
    node.allocatable = {LAMP: ("l0",)}
    report = await node.verify(lamp(devices=[{"id": "l0", "nodes": ["/dev/null"]}]))
    (problem,) = report.problems
    assert problem == f"{LAMP}: default/hold runs without a device"
    assert node.asked == []


async def test_left_out_devices_are_named_if_none_is_offered(node: FakeNode, tmp_path: Path) -> None:
    (tmp_path / "lamp0").write_text("")
    (row,) = (await node.verify(lamp(discover={"paths": [f"{tmp_path}/lamp*"]}))).rows
    assert (row.state, len(row.absent)) == ("empty", 1)
    assert row.absent[0].endswith(f": {tmp_path}/lamp0 is neither a device node nor a link to one")
