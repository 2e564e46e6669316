"""What the API server and the kubelet tell about a node's devices of DRA, for the commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...cluster.api import Place
from ...declaration import Resource
from ...declaration.device_plugin_api import kubelet_ids
from ...declaration.dra_api import API_VERSION, ID_ATTRIBUTE, RESOURCE_ATTRIBUTE
from ...declaration.model import DraDriver
from ...declaration.names import attribute_text, pool_name
from ..checkpoint import CheckpointError
from ..pod_resources import Claimed, Holder
from ..queries import HeldDevice
from .publisher import connect
from .records import RecordError, Records
from .slices import Object, device_name, is_tainted

#: Every device of ours has these attributes.
_KEYS = (RESOURCE_ATTRIBUTE, ID_ATTRIBUTE)


def read_slices(driver: DraDriver) -> list[Object]:
    """The node's ResourceSlices of our driver, with the plugin's own access. Raises ApiError. Blocks."""
    # A kubelet's credentials list only the slices of its own node.
    selector = f"spec.nodeName={driver.node},spec.driver={driver.name}"
    return connect(driver).list(Place("resourceslices", group=API_VERSION), fieldSelector=selector)


def offered(slices: Iterable[Object], resources: Sequence[Resource]) -> dict[str, tuple[str, ...]]:
    """By resource, the ids of its healthy devices in slices, with an id for each share.

    The shares of a device that the resource does not have count once.
    """
    names = {attribute_text(resource.name): resource.name for resource in resources}
    listed = {resource.name: _listed_ids(resource) for resource in resources}
    found: dict[str, set[str]] = {}
    for each in slices:
        for device in each["spec"].get("devices") or ():
            if is_tainted(device):
                continue
            # The API requires no attributes, and another program's slice may have none.
            attributes = device.get("attributes") or {}
            resource, device_id = (attributes.get(key, {}).get("string", "") for key in _KEYS)
            if resource in names:
                name = names[resource]
                found.setdefault(name, set()).add(listed[name].get(device["name"], device_id))
    return {name: tuple(sorted(ids)) for name, ids in found.items()}


def held_by_claims(cdi_dir: str, claims: Iterable[Claimed]) -> list[HeldDevice]:
    """What prepared claims hold, once for each container that has the claim. claims: as the kubelet lists them.

    cdi_dir: the directory of the plugin's CDI specs, with its records. Blocks. Raises CheckpointError, as for the
    kubelet's own record.
    """
    try:
        records = Records().read(cdi_dir)
    except RecordError as error:
        raise CheckpointError(str(error)) from error
    places: dict[str, list[tuple[str, str, str]]] = {}
    for each in claims:
        places.setdefault(each.claim, []).append((each.namespace, each.pod, each.container))
    held = []
    for prepared in records.values():
        claim = f"{prepared.id.namespace}/{prepared.id.name}"
        for device in prepared.devices:
            own = HeldDevice(device.resource, device.device_id, "", "", "", device.paths, device.paths, True)
            own = own._replace(cdi_names=device.cdi_names, claim=claim)
            for namespace, pod, container in dict.fromkeys(places.get(claim, [("", "", "")])):
                held.append(own._replace(namespace=namespace, pod=pod, container=container))
    return held


def _listed_ids(resource: Resource) -> dict[str, str]:
    """The id of each device or share by its name in the pool."""
    ids = (each for device in resource.devices for each in kubelet_ids(resource, device))
    return {device_name(listed_id): listed_id for listed_id in ids}


def holders(claims: Iterable[Claimed], driver: DraDriver, resources: Sequence[Resource]) -> list[Holder]:
    """The containers that hold devices, or shares, of these resources by claims."""
    pools = {pool_name(driver.node, resource.name): (resource.name, _listed_ids(resource)) for resource in resources}
    held: dict[tuple[str, str, str, str], set[str]] = {}
    for each in claims:
        name, listed = pools.get(each.pool, ("", {})) if each.driver == driver.name else ("", {})
        if each.device in listed:
            held.setdefault((each.namespace, each.pod, each.container, name), set()).add(listed[each.device])
    return [Holder(*place, device_ids=tuple(sorted(ids))) for place, ids in sorted(held.items())]
