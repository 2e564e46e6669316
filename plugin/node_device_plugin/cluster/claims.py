"""What the API server tells of the devices that pods get by ResourceClaims: what nodes offer, and what claims have.

For nodes that only the API reaches. On a node, the plugin's record and the kubelet tell more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..declaration import Resource
from ..declaration.dra_api import API_VERSION
from ..declaration.model import DRA
from ..declaration.names import pool_name
from .api import Api, Place
from .extended_resources import capacities_of
from .pods import Use

_SLICES, _CLAIMS = (Place(kinds, group=API_VERSION) for kinds in ("resourceslices", "resourceclaims"))


class Allocated(NamedTuple):
    """A device that a claim has. claim, pods: as namespace/name; pods: those that may use the claim.

    driver, pool: of the device. is_admin: whether other claims may have the device, too.
    """

    claim: str
    pods: tuple[str, ...]
    driver: str
    pool: str
    is_admin: bool

    @property
    def node(self) -> str:
        """The node of the device."""
        return self.pool.partition("/")[0]


def allocated(api: Api) -> Iterator[Allocated]:
    """Yield each device of any driver that a claim has. Raises ApiError."""
    for claim in api.list(_CLAIMS):
        metadata, status = claim["metadata"], claim.get("status") or {}
        users = [each["name"] for each in status.get("reservedFor") or () if each.get("resource") == "pods"]
        pods = tuple(f"{metadata['namespace']}/{name}" for name in sorted(users))
        for each in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            name = f"{metadata['namespace']}/{metadata['name']}"
            yield Allocated(name, pods, each["driver"], each["pool"], bool(each.get("adminAccess")))


def in_use(api: Api, driver: str, node: str, resources: Iterable[Resource]) -> dict[str, Use]:
    """The use of each resource with ``api: dra`` on a node, by the resource's name. Raises ApiError."""
    by_pool = {pool_name(node, each.name): each.name for each in resources if each.api == DRA}
    uses: dict[str, Use] = {}
    for found in allocated(api) if by_pool else ():
        if found.driver == driver and found.pool in by_pool and not found.is_admin:
            name = by_pool[found.pool]
            before = uses.get(name, Use(0, ()))
            uses[name] = Use(before.shares + 1, tuple(sorted({*before.pods, *found.pods})))
    return uses


def published(api: Api, driver: str, node: str = "") -> dict[str, int]:
    """The number of healthy devices in each pool of a driver: of a node, or of all nodes if it is empty.

    The driver gives an unhealthy device a taint, which keeps pods away. Raises ApiError.
    """
    selector = f"spec.driver={driver}" + (f",spec.nodeName={node}" if node else "")
    counts: dict[str, int] = {}
    for each in api.list(_SLICES, fieldSelector=selector):
        pool = each["spec"]["pool"]["name"]
        healthy = sum(not device.get("taints") for device in each["spec"].get("devices") or ())
        counts[pool] = counts.get(pool, 0) + healthy
    return counts


def with_published(node: Mapping[str, Any], resources: Iterable[Resource], pools: Mapping[str, int]) -> dict[str, Any]:
    """A node object that also shows the resources with ``api: dra``, with their devices as capacity and allocatable.

    pools: the number of devices by pool. A resource without a pool is not shown.
    """
    names = {each.name: pool_name(node["metadata"]["name"], each.name) for each in resources if each.api == DRA}
    more = {name: str(pools[pool]) for name, pool in names.items() if pool in pools}
    shown = {
        part: {**{name: count for name, count in capacities_of(node, part).items() if name not in names}, **more}
        for part in ("capacity", "allocatable")
    }
    return {**node, "status": {**(node.get("status") or {}), **shown}}
