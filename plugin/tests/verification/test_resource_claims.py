"""What a verification says of resources with ``api: dra``, by the node's ResourceSlices and the pods with claims."""

import dataclasses
from pathlib import Path
from typing import Any, Optional

import pytest

from node_device_plugin.cluster.api import ApiError
from node_device_plugin.declaration import parse_configuration
from node_device_plugin.declaration.model import DraDriver
from node_device_plugin.declaration.names import pool_name
from node_device_plugin.kubelet.dra import queries
from node_device_plugin.kubelet.dra.slices import TAINT, changes, device_name, pool_of
from node_device_plugin.kubelet.pod_resources import Claimed
from node_device_plugin.verification.report import Report
from node_device_plugin.verification.scope import Scope

from .fake_node import VERIFY, FakeNode

CAMERA = {
    "name": "example.com/camera",
    "api": "dra",
    "devices": [{"id": each, "nodes": [{"path": f"/dev/{each}", "host_path": "/dev/zero"}]} for each in ("c0", "c1")],
}
LAMP = {"name": "example.com/lamp", "devices": [{"id": "l0", "nodes": [{"path": "/dev/l0", "host_path": "/dev/full"}]}]}
DRIVER = DraDriver(node="worker")


@dataclasses.dataclass
class Cluster:
    """The API server. camera: the resource. shows: the ids in its slices. problem: why the server does not answer."""

    camera: Any = dataclasses.field(default_factory=lambda: CAMERA)
    shows: tuple[str, ...] = ("c0", "c1")
    problem: str = ""

    def read(self, driver: DraDriver) -> list[dict[str, Any]]:
        if self.problem:
            raise ApiError(self.problem)
        (resource,) = parse_configuration({"resources": [self.camera]}).resources
        devices = [each for each in resource.devices if each.id in self.shows]
        known = {each.id for each in resource.devices}
        more = [resource.devices[0]._replace(id=each) for each in self.shows if each not in known]
        pool = pool_of(DRIVER, resource, [(each, None) for each in (*devices, *more)])
        return [write.new for write in changes(DRIVER, "uid", [pool], []) if write.new]


class Node(FakeNode):
    """A node with a DRA driver, which the plugin says of itself."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        super().__init__(monkeypatch, path, {"example.com/lamp": ["l0"]})
        self.cluster = Cluster()
        self.claims: list[Claimed] = []
        self.plugin = {"resources": [said(), {**said(), "name": "example.com/lamp", "api": "device_plugin"}]}
        monkeypatch.setattr(queries, "read_slices", self.cluster.read)

    async def _listing(self, *arguments: object) -> Any:
        return (await super()._listing(*arguments))._replace(claims=tuple(self.claims))

    def claims_it(self, pod: str, lacks: list[str], device: str, driver: str = DRIVER.name) -> None:
        """A pod whose container has a device by a claim."""
        self.holds(pod, lacks, resource="none")
        self.holders.pop()
        place = ("default", pod, "main", f"default/{pod}-claim")
        self.claims.append(Claimed(*place, driver, pool_name("worker", "example.com/camera"), device_name(device)))

    async def found(self, **scope: Any) -> Report:
        configuration = parse_configuration({"resources": [self.cluster.camera, LAMP], "dra": {"node": "worker"}})
        defaults = {"runtime_socket": "/none.sock", "kubelet_root": str(self.path), "static_pod_dir": str(self.path)}
        others = {"image": None, "devices": "one", "unproven_only": False, "record": None, "timeout": 0.0}
        more = {"kubelet_kubeconfig": "/kubelet.conf", "max_pods": 10}
        report: Report = await VERIFY.verify(configuration, Scope(**{**defaults, **others, **more, **scope}))
        return report


def said(problem: Optional[str] = None, is_registered: bool = True) -> dict[str, Any]:
    devices = [{"id": each, "state": "healthy", "reason": None} for each in ("c0", "c1")]
    return {
        "name": "example.com/camera",
        "api": "dra",
        "registered": is_registered,
        "problem": problem,
        "devices": devices,
    }


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Node:
    return Node(monkeypatch, tmp_path)


async def test_a_free_device_waits_for_a_pod_with_a_claim(node: Node) -> None:
    report = await node.found()
    camera, lamp = report.rows
    assert (camera.state, camera.capacity, camera.healthy, camera.shares) == ("unproven", 2, 2, 1)
    assert "a static pod cannot have a claim: run verify.yml with node_devices_kubeconfig" in camera.detail
    assert (lamp.state, lamp.seen, node.asked) == ("proven", ("l0",), ["example.com/lamp 1"])
    assert (report.problems, report.warnings) == ([], [])


async def test_a_proof_asks_for_no_more_devices_than_a_claim_may_have(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = tuple(f"c{each}" for each in range(40))
    nodes = {each: [{"path": f"/dev/{each}", "host_path": "/dev/zero"}] for each in ids}
    monkeypatch.setitem(CAMERA, "devices", [{"id": each, "nodes": nodes[each]} for each in ids])
    node.cluster.shows = ids
    assert node.plugin is not None
    node.plugin["resources"][0]["devices"] = [{"id": each, "state": "healthy", "reason": None} for each in ids]
    (row, _lamp) = (await node.found(devices="all")).rows
    assert (row.state, row.healthy, row.shares) == ("unproven", 40, 32)


async def test_the_container_of_a_claim_proves(node: Node) -> None:
    node.claims_it("other", [], "c0", driver="gpu.example.com")
    assert (await node.found()).rows[0].state == "unproven"
    node.claims_it("viewer", [], "c1")
    row = (await node.found()).rows[0]
    assert (row.state, row.seen) == ("proven", ("c1",))


async def test_a_container_without_its_device(node: Node) -> None:
    for device in ("c0", "c1"):
        node.claims_it(device, ["device node /dev/c: no such file"], device)
    row = (await node.found()).rows[0]
    assert (row.state, row.detail[:40]) == ("unproven", "no device is free, and a container of de")


@pytest.mark.parametrize(
    ("shows", "says"),
    [
        (("c0",), "expected 2 healthy devices in the node's ResourceSlices, found 1 (missing: c1)"),
        ((), "expected 2 healthy devices in the node's ResourceSlices, found 0 (missing: c0 c1)"),
        (
            ("c0", "c1", "c2"),
            "expected 2 healthy devices in the node's ResourceSlices, found 3 (not declared: c2)",
        ),
    ],
)
async def test_slices_with_other_devices(node: Node, shows: tuple[str, ...], says: str) -> None:
    node.cluster.shows = shows
    report = await node.found()
    assert (report.rows[0].state, report.rows[0].detail) == ("failed", says)
    assert report.problems == [f"example.com/camera: {says}"]


async def test_a_driver_that_is_not_registered(node: Node) -> None:
    assert node.plugin is not None
    node.plugin["resources"][0] = said("the kubelet refused it: unknown", False)
    assert (await node.found()).rows[0].detail == (
        "expected the DRA driver to be registered with the kubelet, found: the kubelet refused it: unknown"
    )
    node.plugin = None
    assert "no plugin answers for the resource" in (await node.found()).rows[0].detail


async def test_without_the_api_server_the_plugin_tells(node: Node) -> None:
    node.cluster.problem = "the API server https://10.0.0.1 does not answer: refused"
    report = await node.found()
    assert (report.rows[0].state, report.rows[0].healthy, report.problems) == ("unproven", 2, [])
    assert report.warnings == [
        "ResourceSlices are checked only by what the plugin says, because they cannot be read: " + node.cluster.problem
    ]


async def test_the_pod_of_a_proof(node: Node) -> None:
    node.claims_it("node-device-proof-12345678", [], "c0")
    assert (await node.found()).rows[0].state == "unproven"
    row = (await node.found(proof_pods=("default/node-device-proof-12345678",))).rows[0]
    assert (row.state, row.seen) == ("proven", ("c0",))


@pytest.mark.parametrize("problem", ["", "the API server does not answer"])
async def test_each_share_is_a_device_of_the_slices(node: Node, problem: str) -> None:
    node.cluster.camera, node.cluster.problem = {**CAMERA, "replicas": 3}, problem
    row = (await node.found(devices="all")).rows[0]
    assert (row.state, row.capacity, row.healthy, row.shares) == ("unproven", 6, 6, 6)
    # Two shares are one device.
    for share in ("c0::0", "c0::2"):
        node.claims_it("node-device-proof-12345678", [], share)
    assert (await node.found(devices="all")).rows[0].shares == 4
    row = (await node.found(proof_pods=("default/node-device-proof-12345678",))).rows[0]
    assert (row.state, row.seen) == ("proven", ("c0",))


def test_long_names_in_slices_are_still_known() -> None:
    # Of this name, slices have only the beginning and a hash.
    long = "example.com/" + "x" * 63
    (resource,) = parse_configuration({"resources": [{**CAMERA, "name": long}]}).resources
    pool = pool_of(DRIVER, resource, [(each, None) for each in resource.devices])
    slices = [write.new for write in changes(DRIVER, "uid", [pool], []) if write.new]
    assert queries.offered(slices, [resource]) == {long: ("c0", "c1")}
    # A device with the taint is not there for pods.
    slices[0]["spec"]["devices"][0]["taints"] = [TAINT]
    assert queries.offered(slices, [resource]) == {long: ("c1",)}
