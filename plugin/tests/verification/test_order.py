"""Whom a proof asks first: containers that are there, then one static pod at a time where there is room."""

import errno
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from node_device_plugin.cluster.pods import Slots
from node_device_plugin.kubelet import queries as kubelet_queries
from node_device_plugin.kubelet.pod_resources import Holder, Listing, PodResourcesError
from node_device_plugin.runtime.errors import CriError
from node_device_plugin.support.bounded_calls import BoundedCalls
from node_device_plugin.support.channels import grpc
from node_device_plugin.verification import looking
from node_device_plugin.verification.looking import Outcome
from node_device_plugin.verification.report import Report, Row
from node_device_plugin.wire import cri_v1_pb2 as cri

from .fake_node import VERIFY, FakeNode

LAMP = {"name": "example.com/lamp", "devices": [{"id": "l0"}, {"id": "l1"}], "env": {"LAMP_{index}": "{id}"}}


async def verify(node: FakeNode, **scope: Any) -> Report:
    return await node.verify(LAMP, **scope)


async def row_of(node: FakeNode, **scope: Any) -> Row:
    report = await verify(node, **scope)
    assert report.problems == []
    (row,) = report.rows
    return row


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeNode:
    return FakeNode(monkeypatch, tmp_path, {"example.com/lamp": ["l0", "l1"]})


async def test_a_container_that_has_its_device_proves_it_without_a_pod(node: FakeNode) -> None:
    node.holds("c1", [], "l1")
    row = await row_of(node)
    assert (row.state, row.seen, row.detail, node.asked) == ("proven", ("l1",), "", [])


async def test_a_container_of_before_a_change_proves_nothing_and_is_no_failure(node: FakeNode) -> None:
    node.holds("old", ["variable LAMP_0: expected 'l0', found nothing"], "l0")
    assert ((await row_of(node)).state, node.asked) == ("proven", ["example.com/lamp 1"])
    node.holds("c2", [], "l1")
    assert (await row_of(node)).seen == ("l1",)
    assert node.asked == ["example.com/lamp 1"]


async def test_where_all_are_held_the_holders_tell(node: FakeNode) -> None:
    node.holds("old", ["variable LAMP_0: expected 'l0', found nothing"], "l0", "l1")
    row = await row_of(node)
    assert (row.state, row.shares) == ("unproven", 0)
    says = "no device is free, and a container of default/old: variable LAMP_0: expected 'l0', found nothing"
    assert row.detail == says
    node.running.clear()
    row = await row_of(node)
    assert (row.state, row.detail, node.asked) == ("in use", "by default/old", [])


async def test_all_devices_are_those_of_containers_and_those_that_are_free(node: FakeNode) -> None:
    node.holds("c1", [], "l0")
    row = await row_of(node, devices="all")
    assert (row.state, row.seen, node.asked) == ("proven", ("l0",), ["example.com/lamp 1"])
    node.holds("c2", [], "l1")
    assert ((await row_of(node, devices="all")).seen, len(node.asked)) == (("l0", "l1"), 1)


async def test_one_static_pod_at_a_time_and_a_list_for_each_at_most(node: FakeNode) -> None:
    """A node of 200 resources: its kubelet would refuse what asks it more than 100 times a second."""
    names = {"example.com/r%d" % number: "d%d" % number for number in range(200)}
    resources = [{"name": name, "devices": [{"id": id}], "env": {"R_" + id: "x"}} for name, id in names.items()]
    node.allocatable = {name: (device,) for name, device in names.items()}
    report = await node.verify(*resources)
    assert {row.state for row in report.rows} == {"proven"}
    assert (len(node.asked), node.most_at_once, node.lists) == (200, 1, 201)
    node.lists = 0
    for name, device in names.items():
        node.holds("of-%s" % device, [], device, resource=name)
    assert {row.state for row in (await node.verify(*resources)).rows} == {"proven"}
    assert (len(node.asked), node.lists) == (200, 1)


async def test_a_static_pod_needs_three_free_slots(node: FakeNode) -> None:
    for node.slots, why in (
        (
            Slots(10, 2),
            "the node has 2 of 10 pod slots free, but a static pod needs 3, or the kubelet may end another pod",
        ),
        ("nobody knows", "nobody knows"),
    ):
        row = await row_of(node)
        assert (row.state, row.detail, row.shares, node.asked) == ("unproven", why, 1, [])
    node.slots = Slots(10, 3)
    assert ((await row_of(node)).state, node.asked) == ("proven", ["example.com/lamp 1"])


async def test_what_stands_against_a_pod_is_the_reason_and_no_failure(node: FakeNode) -> None:
    row = await row_of(node, static_pod_dir="")
    assert (row.state, row.detail) == (
        "unproven",
        "the kubelet runs no static pods: set staticPodPath in its configuration",
    )
    row = await row_of(node, static_pod_dir=None)
    why = "the proof's pod needs a place: set --static-pod-dir to the kubelet's staticPodPath"
    assert (row.state, row.detail) == ("unproven", why)
    row = await row_of(node, makes_static_pods=False)
    assert (row.state, row.detail, row.shares) == ("unproven", "static pods are turned off (--no-static-pods)", 1)
    row = await row_of(node, static_pod_dir="/none")
    assert (row.state, row.detail) == ("unproven", "the kubelet's static pod directory /none does not exist")
    report = await verify(node, image="own:1")
    why = "the node has no image own:1 (verification_image): pull it, because a proof pulls no image"
    assert (report.rows[0].state, report.rows[0].detail, report.image) == ("unproven", why, None)
    node.cri_error = CriError("/none.sock", "list its containers", grpc.StatusCode.UNAVAILABLE, "gone")
    row = await row_of(node)
    assert (row.state, "could not list its containers" in row.detail) == ("unproven", True)
    assert node.asked == []


async def test_devices_that_pods_took_meanwhile_are_left_to_them(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    listing = node._listing

    async def taken_later(*_: object) -> Listing:
        if node.lists:
            node.holders = [Holder("default", "quick", "main", "example.com/lamp", ("l0", "l1"))]
        return await listing()

    monkeypatch.setattr(kubelet_queries, "listing", taken_later)
    row = await row_of(node)
    assert (row.state, row.detail) == ("unproven", "no device is free: all are in use by default/quick")
    assert node.asked == []


async def test_a_pod_that_was_made_for_the_proof_is_the_only_judge(node: FakeNode) -> None:
    node.holds("c1", [], "l0")
    node.holds("node-device-proof-x", ["variable LAMP_0: expected 'l1', found nothing"], "l1")
    report = await verify(node, proof_pods=("default/node-device-proof-x",))
    problem = "example.com/lamp: in a container: variable LAMP_0: expected 'l1', found nothing"
    assert (report.rows[0].state, report.problems) == ("failed", [problem])
    node.shows[101] = []
    row = await row_of(node, proof_pods=("default/node-device-proof-x",))
    assert (row.state, row.seen) == ("proven", ("l1",))
    row = await row_of(node, proof_pods=("default/node-device-proof-y",))
    assert (row.state, row.detail) == ("unproven", "the proof's pod no longer holds a device of this resource")
    assert node.asked == []


@pytest.mark.parametrize("makes", [True, False])
async def test_what_a_killed_proof_left_is_no_proof_and_goes(node: FakeNode, makes: bool) -> None:
    """The kubelet ran its pod after a boot; that play has a kubeconfig, or has none."""
    manifest = node.left_over("l0", "l1", stays=2)
    row = await row_of(node, timeout=60.0, makes_static_pods=makes)
    assert not manifest.exists()
    assert (row.state, row.shares, node.holders) == (("proven", 0, []) if makes else ("unproven", 1, []))
    assert node.asked == ["example.com/lamp 1"] * makes


async def test_what_a_killed_proof_left_is_no_device_by_another_name(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is held under a resource's old name is asked for after the pod is gone."""
    node.left_over("l0", stays=2)
    asked = []

    async def holders(*_: object) -> Any:
        asked.append(list(node.holders))
        return kubelet_queries.Holders("kubelet")

    monkeypatch.setattr(kubelet_queries, "holders", holders)
    assert ((await row_of(node, timeout=60.0)).state, asked) == ("proven", [[]])


async def test_what_a_killed_proof_left_proves_nothing_while_it_stays(node: FakeNode) -> None:
    manifest = node.left_over("l0", "l1", stays=None)
    row = await row_of(node)
    assert (row.state, row.detail) == ("in use", "by kube-system/node-device-proof-0badcafe-node1")
    assert (manifest.exists(), node.asked) == (False, [])


async def test_what_a_killed_proof_left_and_cannot_be_removed_is_wrong(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = node.left_over("l0")

    def refuse(path: str) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted", path)

    monkeypatch.setattr(os, "unlink", refuse)
    report = await verify(node)
    problem = "cannot remove the static pod of a killed proof: %s: Operation not permitted" % manifest
    assert report.problems == [problem]


async def test_a_directory_of_static_pods_that_hangs_is_named(node: FakeNode, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = threading.Event()
    monkeypatch.setattr(VERIFY, "remove_leftovers", lambda _directory: hangs.wait())
    monkeypatch.setattr(VERIFY, "BoundedCalls", lambda **_: BoundedCalls(0.2))
    report = await verify(node)
    hangs.set()
    assert report.problems == ["cannot remove the static pod of a killed proof: %s did not answer in 0.2 s" % node.path]


async def test_the_proofs_of_others_prove_nothing(node: FakeNode) -> None:
    """A play that died left it, or another one makes it now: it is gone before its device could be relied on."""
    node.holds("node-device-proof-x7k2p", [], "l0", namespace="devices")
    row = await row_of(node)
    assert (row.state, row.seen, node.asked) == ("proven", ("l0",), ["example.com/lamp 1"])
    node.holds("node-device-proof-abcde", [], "l1", namespace="kube-system")
    row = await row_of(node, devices="all")
    says = "by devices/node-device-proof-x7k2p, kube-system/node-device-proof-abcde"
    assert (row.state, row.detail, len(node.asked)) == ("in use", says, 1)


async def test_what_is_unproven_is_not_remembered_and_keeps_what_was(node: FakeNode, tmp_path: Path) -> None:
    node.slots = Slots(10, 0)
    assert (await verify(node)).proven == {}
    node.slots = Slots(10, 10)
    proven = (await verify(node)).proven
    assert set(proven) == {"example.com/lamp"}
    record = tmp_path / "record"
    record.write_text('{"example.com/lamp": "%s"}' % proven["example.com/lamp"])
    node.slots = Slots(10, 0)
    report = await verify(node, record=str(record))
    assert (report.rows[0].state, report.proven) == ("unproven", proven)
    report = await verify(node, record=str(record), unproven_only=True)
    assert (report.rows[0].state, report.rows[0].shares) == ("proven before", 0)


async def test_what_a_proof_disproved_is_remembered_no_more(node: FakeNode, tmp_path: Path) -> None:
    record = tmp_path / "record"
    record.write_text(json.dumps((await verify(node)).proven))
    node.outcome = Outcome((), ("device node /dev/lamp: no such file or directory",))
    report = await verify(node, record=str(record))
    assert (report.rows[0].state, report.proven) == ("failed", {})


@pytest.mark.parametrize("how", ["exited", "without a process", "ends meanwhile"])
async def test_a_container_that_has_ended_proves_nothing(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    async def no_process(_container: str) -> None:
        return None

    async def ends(*_: object) -> Outcome:
        raise ProcessLookupError("the container's process has ended")

    node.holds("node-device-proof-x", [], "l0", "l1")
    if how == "exited":
        node.running[0].state = cri.CONTAINER_EXITED
    elif how == "without a process":
        monkeypatch.setattr(node, "container_pid", no_process)
    else:
        monkeypatch.setattr(looking, "look", ends)
    row = await row_of(node, proof_pods=("default/node-device-proof-x",))
    says = "the proof's container ended before the check"
    assert (row.state, row.seen, row.detail) == ("unproven", (), says)
    # Nor does one that holds all devices for somebody else.
    node.holders[0] = node.holders[0]._replace(pod="job")
    node.running[0].labels["io.kubernetes.pod.name"] = "job"
    row = await row_of(node)
    assert (row.state, row.seen, row.detail) == ("in use", (), "by default/job")


async def test_after_a_switch_of_the_mode_nothing_is_proven(node: FakeNode, tmp_path: Path) -> None:
    record = tmp_path / "record"
    proven = (await verify(node, plugin="service")).proven
    record.write_text('{"example.com/lamp": "%s"}' % proven["example.com/lamp"])
    node.slots = Slots(10, 0)
    report = await verify(node, plugin="daemonset image:1", record=str(record), unproven_only=True)
    assert (report.rows[0].state, report.proven) == ("unproven", {})


async def test_a_kubelet_that_others_keep_busy_is_not_called_away(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pod-resources").mkdir()
    (tmp_path / "pod-resources" / "kubelet.sock").touch()

    async def refuse(*_: object) -> Listing:
        code = grpc.StatusCode.RESOURCE_EXHAUSTED
        raise PodResourcesError("/kubelet.sock", "list pods", code, "rejected by rate limit")

    monkeypatch.setattr(kubelet_queries, "listing", refuse)
    report = await verify(node)
    (problem,) = report.problems
    assert "all clients together send more than 100 requests a second" in problem
    assert "found none" not in problem
