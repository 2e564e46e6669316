"""What the commands learn of claims: from the records of prepared claims, and from the kubelet."""

from pathlib import Path

import pytest

from node_device_plugin.declaration import parse_resources
from node_device_plugin.kubelet.checkpoint import CheckpointError
from node_device_plugin.kubelet.dra import RECORDS
from node_device_plugin.kubelet.dra.claims import ClaimId, PreparedClaim, PreparedDevice
from node_device_plugin.kubelet.dra.queries import offered
from node_device_plugin.kubelet.dra.records import Records
from node_device_plugin.kubelet.pod_resources import Claimed
from node_device_plugin.kubelet.queries import HeldDevice, Holders, with_claims

PATHS = ("/dev/video0",)
NAMES = ("example.com/camera=c0",)
DEVICE = PreparedDevice("r", "w/camera.example.com", "c0", "example.com/camera", "c0", NAMES, PATHS, False)


def prepared(uid: str, name: str) -> PreparedClaim:
    return PreparedClaim(ClaimId(uid, "default", name), "dra.example.com", (DEVICE,), {})


def claimed(container: str, claim: str) -> Claimed:
    return Claimed("default", "viewer", container, claim, "d", DEVICE.pool, DEVICE.name)


def test_a_device_without_attributes_is_of_no_resource() -> None:
    """The field is optional, and a later version or another program may leave it out."""
    (resource,) = parse_resources([{"name": "example.com/camera", "devices": [{"id": "c0", "nodes": ["/dev/c0"]}]}])
    values = {"resource": {"string": "example.com/camera"}, "id": {"string": "c0"}}
    named = [{"name": "a"}, {"name": "b", "attributes": None}, {"name": "c0", "attributes": values}]
    assert offered([{"spec": {"devices": named}}, {"spec": {}}], [resource]) == {"example.com/camera": ("c0",)}


async def test_each_container_of_a_claim_holds_its_devices(tmp_path: Path) -> None:
    unseen = prepared("u-2", "unseen")
    unseen = unseen._replace(devices=tuple(each._replace(device_id="c1") for each in unseen.devices))
    for claim in (prepared("u-1", "c"), unseen):
        Records().write(str(tmp_path), claim)
    lamp = HeldDevice("example.com/lamp", "l0", "default", "p", "main")
    claims = (claimed("main", "default/c"), claimed("side", "default/c"), claimed("main", "other/c"))
    found = await with_claims(Holders("kubelet", (lamp,), claims=claims), str(tmp_path))
    of_claim = HeldDevice("example.com/camera", "c0", "", "", "", PATHS, PATHS, True, NAMES, "default/c")
    assert found.held == (
        lamp,
        of_claim._replace(namespace="default", pod="viewer", container="main"),
        of_claim._replace(namespace="default", pod="viewer", container="side"),
        of_claim._replace(device="c1", claim="default/unseen"),
    )
    assert {"claims", "containers"}.isdisjoint(found.to_data())


async def test_nodes_without_claims_and_damaged_records(tmp_path: Path) -> None:
    nobody = Holders("kubelet")
    assert await with_claims(nobody, str(tmp_path)) is nobody
    (tmp_path / RECORDS).mkdir()
    (tmp_path / RECORDS / "u-1.json").write_text("{")
    with pytest.raises(CheckpointError, match="cannot read which devices a claim has"):
        await with_claims(nobody, str(tmp_path))
