"""Judges resources that pods get by ResourceClaims (DRA), and proves them with the containers of such pods.

A static pod cannot have a claim, so this command creates no pod. ``verify.yml`` creates ordinary pods with claims.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..cluster import in_pod
from ..cluster.api import Api, ApiError, Place
from ..cluster.kubeconfig import KubeconfigError
from ..declaration import Resource
from ..declaration.model import DraDriver
from ..declaration.names import attribute_text
from ..kubelet.dra.slices import API_VERSION, device_name, pool_name
from ..kubelet.pod_resources import Claimed, Holder, Listing
from ..runtime.client import CriClient
from ..support.bounded_calls import in_thread
from .expected import Expected
from .listed import Listed
from .report import Outcome
from .scope import Scope

#: An object of the API, as JSON.
_Object = Mapping[str, Any]


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
        allocatable = offered(await in_thread(read_slices, driver), resources)
    except ApiError as error:
        allocatable = said_offered({each.resource.name: each.said for each in wanted if each.said})
        warnings = [f"ResourceSlices are checked only by what the plugin says, because they cannot be read: {error}"]
    claims = Listing(listing.pods, holders(listing.claims, driver, resources), allocatable=allocatable)
    return ResourceClaims(claims, scope, warnings)


def read_slices(driver: DraDriver) -> list[dict[str, Any]]:
    """The node's slices of our driver, with the plugin's own access. Raises ApiError. Blocks."""
    try:
        api = Api.of(driver.kubeconfig) if driver.kubeconfig else Api(in_pod.access(os.environ))
    except KubeconfigError as error:
        raise ApiError(str(error)) from error
    # Kubelets may list only the slices of their own node.
    selector = f"spec.nodeName={driver.node},spec.driver={driver.name}"
    return api.list(Place("resourceslices", group=API_VERSION), fieldSelector=selector)


def offered(slices: Iterable[_Object], resources: Sequence[Resource]) -> dict[str, tuple[str, ...]]:
    """By resource, the ids of its devices in slices. An id that no device of the resource has stays as it is shown."""
    names = {attribute_text(resource.name): resource for resource in resources}
    found: dict[str, list[str]] = {}
    for each in slices:
        for device in each["spec"].get("devices") or ():
            shown = {name: device["attributes"].get(name, {}).get("string", "") for name in ("resource", "id")}
            resource = names.get(shown["resource"])
            if resource is not None:
                ids = {attribute_text(its.id): its.id for its in resource.devices}
                found.setdefault(resource.name, []).append(ids.get(shown["id"], shown["id"]))
    return {name: tuple(sorted(ids)) for name, ids in found.items()}


def said_offered(said: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The same by what the running plugin says of each resource, for a node whose API server does not answer."""
    return {
        name: tuple(sorted(device["id"] for device in each["devices"] if device["state"] == "healthy"))
        for name, each in said.items()
    }


def holders(claims: Iterable[Claimed], driver: DraDriver, resources: Sequence[Resource]) -> list[Holder]:
    """The containers that hold devices of these resources by claims."""
    known = {
        (pool_name(driver.node, resource.name), device_name(device.id)): (resource.name, device.id)
        for resource in resources
        for device in resource.devices
    }
    held: dict[tuple[str, str, str, str], set[str]] = {}
    for each in claims:
        if each.driver == driver.name and (each.pool, each.device) in known:
            name, device_id = known[each.pool, each.device]
            held.setdefault((each.namespace, each.pod, each.container, name), set()).add(device_id)
    return [Holder(*place, device_ids=tuple(sorted(ids))) for place, ids in sorted(held.items())]
