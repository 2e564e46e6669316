"""The claims that a driver prepares with a kubelet's credentials, against a real API server with Node authorizer."""

from __future__ import annotations

import contextlib
import functools
import time
import urllib.error

import pytest
import stand_in

from node_device_plugin.declaration import parse_resources
from node_device_plugin.declaration.model import DraDriver
from node_device_plugin.declaration.names import pool_name
from node_device_plugin.kubelet.dra.claims import ClaimId, Offered, PreparedClaim, Refused
from node_device_plugin.kubelet.dra.preparing import Preparing
from node_device_plugin.kubelet.dra.publisher import connect
from node_device_plugin.support.bounded_calls import BoundedCalls

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

NODE = stand_in.KUBELETS_NODE
CAMERA = "example.com/camera"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
PODS = "/api/v1/namespaces/default/pods"


class Claims:
    """Claims of this node's pods, and what prepares them."""

    def __init__(self, cluster, folder) -> None:
        self.cluster = cluster
        driver = DraDriver("dra.example.com", NODE, cluster.kubeconfig({"token": "kubelet-token"}))
        devices = [{"id": "front", "nodes": [{"path": "/dev/null"}]}]
        (self.resource,) = parse_resources([{"name": CAMERA, "devices": devices}])
        client = functools.partial(connect, driver)
        self.preparing = Preparing(driver, self._find, client, BoundedCalls(), lambda path: path)
        self.preparing.directory = str(folder)

    def _find(self, pool: str, name: str) -> Offered | None:
        is_ours = (pool, name) == (pool_name(NODE, CAMERA), "front")
        return Offered(self.resource, self.resource.devices[0], 0, "front", None) if is_ours else None

    def create(self, name: str, allocated: bool = True) -> ClaimId:
        """A claim, allocated as a scheduler does it."""
        exactly = {"deviceClassName": "camera.example.com"}
        spec = {"devices": {"requests": [{"name": "cam", "exactly": exactly}]}}
        made = self.cluster.ask("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})
        if allocated:
            pool = pool_name(NODE, CAMERA)
            result = {"request": "cam", "driver": "dra.example.com", "pool": pool, "device": "front"}
            status = {"allocation": {"devices": {"results": [result]}}}
            self.cluster.ask("PUT", f"{CLAIMS}/{name}/status", {**made, "status": status})
        return ClaimId(made["metadata"]["uid"], "default", name)

    def bind(self, claim: str) -> None:
        """A pod on this node that has the claim."""
        container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "camera"}]}}
        spec = {
            "nodeName": NODE,
            "containers": [container],
            "resourceClaims": [{"name": "camera", "resourceClaimName": claim}],
        }
        self.cluster.ask("POST", PODS, {"metadata": {"name": f"of-{claim}"}, "spec": spec})

    async def prepare(self, claim: ClaimId) -> PreparedClaim:
        """Prepare a claim of a bound pod, which the Node authorizer knows a moment later. Raises Refused."""
        until = time.monotonic() + 10
        while True:
            try:
                return await self.preparing.prepare(claim)
            except Refused as error:
                if "cannot read it" not in str(error) or time.monotonic() > until:
                    raise


@pytest.fixture
def claims(cluster, tmp_path):
    node = cluster.node({"cpu": "2"}, NODE)
    with contextlib.suppress(urllib.error.HTTPError):
        cluster.ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    yield Claims(cluster, tmp_path)
    for place in (f"{PODS}?gracePeriodSeconds=0", CLAIMS):
        cluster.ask("DELETE", place)
    node.delete()


async def test_a_claim_of_a_pod_on_this_node(claims, caplog):
    claim = claims.create("mine")
    # The Node authorizer does not know the pod yet.
    with pytest.raises(Refused, match="claim default/mine: cannot read it from the API server"):
        await claims.preparing.prepare(claim)
    assert "cannot get resource" in caplog.text
    claims.bind("mine")
    prepared = await claims.prepare(claim)
    (device,) = prepared.devices
    assert (device.request, device.pool, device.name) == ("cam", f"{NODE}/camera.example.com", "front")
    assert device.cdi_names == ("example.com/camera=front",)
    assert await claims.preparing.prepare(claim) == prepared
    # After a forced deletion, another claim gets the same device.
    other = claims.create("other")
    claims.bind("other")
    with pytest.raises(Refused, match="is still prepared for claim default/mine"):
        await claims.prepare(other)
    await claims.preparing.unprepare(claim)
    await claims.preparing.prepare(other)


async def test_a_claim_that_is_not_allocated_or_was_made_again(claims):
    claim = claims.create("mine", allocated=False)
    claims.bind("mine")
    with pytest.raises(Refused, match="claim default/mine: is not allocated"):
        await claims.prepare(claim)
    former = claim._replace(uid="00000000-0000-4000-8000-000000000000")
    with pytest.raises(
        Refused, match=f"has the uid {claim.uid} in the API server, but the kubelet asks for {former.uid}"
    ):
        await claims.preparing.prepare(former)
