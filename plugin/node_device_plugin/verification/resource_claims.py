"""Judges resources that pods get by ResourceClaims (DRA), and proves them with the containers of such pods.

A static pod cannot have a claim, so this command creates no pod. ``verify.yml`` creates ordinary pods with claims.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..cluster.api import ApiError
from ..declaration import Resource
from ..declaration.device_plugin_api import kubelet_ids
from ..declaration.model import DraDriver
from ..kubelet.dra import queries
from ..kubelet.pod_resources import Listing
from ..runtime.client import CriClient
from ..support.bounded_calls import in_thread
from .expected import Expected
from .listed import Listed
from .report import Outcome
from .scope import Scope


class ResourceClaims(Listed):
    """The API of DRA drivers. listing: what the node's ResourceSlices offer, and the containers with claims.

    warnings: why the slices are only as the plugin tells them; empty if the API server has told them.
    """

    where = "in the node's ResourceSlices"

    def __init__(self, listing: Listing, scope: Scope, warnings: Sequence[str]) -> None:
        super().__init__(listing, scope)
        self.warnings = warnings

    def unregistered(self, wanted: Expected) -> str:
        said = wanted.said
        if said is None:
            return "expected the plugin to be the node's DRA driver, but no plugin answers for the resource"
        if said["registered"]:
            return ""
        return f"expected the DRA driver to be registered with the kubelet, found: {said.get('problem') or 'it is not'}"

    async def by_new_pod(self, resource: Resource, cri: CriClient) -> Outcome:
        return Outcome(
            unproven="no running container holds a device by a claim, and a static pod cannot have a claim: run "
            "verify.yml with node_devices_kubeconfig, which creates a pod with a claim"
        )


async def judge(listing: Listing, driver: DraDriver, wanted: Sequence[Expected], scope: Scope) -> ResourceClaims:
    """The judge of resources with ``api: dra``. listing: the kubelet's. wanted: with what the plugin says of them."""
    resources = [each.resource for each in wanted]
    warnings = []
    try:
        allocatable = queries.offered(await in_thread(queries.read_slices, driver), resources)
    except ApiError as error:
        allocatable = {each.resource.name: _said_offered(each) for each in wanted if each.said}
        warnings = [f"ResourceSlices are checked only by what the plugin says, because they cannot be read: {error}"]
    claims = Listing(listing.pods, queries.holders(listing.claims, driver, resources), allocatable=allocatable)
    return ResourceClaims(claims, scope, warnings)


def _said_offered(wanted: Expected) -> tuple[str, ...]:
    """The same of one resource by what the running plugin says, for a node whose API server does not answer."""
    said = (wanted.said or {}).get("devices", ())
    healthy = {device["id"] for device in said if device["state"] == "healthy"}
    resource = wanted.resource
    shares = (share for each in resource.devices if each.id in healthy for share in kubelet_ids(resource, each))
    return tuple(sorted({*shares, *healthy.difference(device.id for device in resource.devices)}))
