# SPDX-License-Identifier: Apache-2.0
"""Decides which nodes move from the device plugin to DRA or back, and when a node serves its resources as declared.

The cluster tells what a node serves: the kubelet writes the number of a device plugin's devices into
``status.allocatable``, and a DRA driver publishes ResourceSlices.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from ....plugin.node_device_plugin.cluster import claims, quantity
from ....plugin.node_device_plugin.cluster.api import Api, NotFound
from ....plugin.node_device_plugin.cluster.extended_resources import capacities_of
from ....plugin.node_device_plugin.declaration import Configuration
from ....plugin.node_device_plugin.declaration.model import DRA
from ....plugin.node_device_plugin.declaration.names import pool_name
from . import device_classes, drain
from .objects import DeploymentError


class Seen(NamedTuple):
    """What a node serves now.

    capacity, allocatable: quantities of the node object by resource. For 5 minutes after a device plugin has stopped,
    only allocatable is 0. published: the number of healthy devices in the node's ResourceSlices, by pool.
    is_ours: whether an earlier drain of this collection left the node cordoned.
    """

    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    published: Mapping[str, int]
    is_ours: bool = False


def look(api: Api, node: str, declared: Configuration) -> Seen:
    """Read what a node serves. Raises ApiError, and DeploymentError if a cluster without DRA has to serve claims."""
    shown = api.node(node)
    try:
        published = claims.published(api, declared.dra.name, node)
    except NotFound as error:
        if declared.uses_dra:
            raise DeploymentError(
                f"{', '.join(_of_api(declared, DRA))}: the cluster does not serve resource.k8s.io/v1, which api: dra "
                "needs: upgrade it to Kubernetes 1.34 or later, or keep api: device_plugin"
            ) from error
        published = {}
    return Seen(capacities_of(shown), capacities_of(shown, "allocatable"), published, drain.is_ours(shown))


def moving(node: str, declared: Configuration, seen: Seen) -> list[str]:
    """Return the resources that the node serves by the other API than the declared one."""
    moves = []
    for resource in declared.resources:
        is_published = pool_name(node, resource.name) in seen.published
        if resource.api == DRA:
            # While all devices are unhealthy, only the capacity tells that a device plugin serves the resource.
            counts = [seen.allocatable.get(resource.name), None if is_published else seen.capacity.get(resource.name)]
            moves += [resource.name] if any(not quantity.same(each or "0", "0") for each in counts) else []
        else:
            moves += [resource.name] if is_published else []
    return moves


def usable(node: str, resources: Iterable[str], seen: Seen) -> list[str]:
    """Return the resources of which pods can get a device of the node, by either API."""
    return [
        name for name in resources if _is_usable(seen.published.get(pool_name(node, name)), seen.allocatable.get(name))
    ]


def _is_usable(published: int | None, allocatable: str | None) -> bool:
    return bool(published) or not quantity.same(allocatable or "0", "0")


def unfinished(
    node: str,
    declared: Configuration,
    seen: Seen,
    healthy: Mapping[str, int] | None,
    before: Collection[str] = (),
) -> Iterator[str]:
    """Yield a sentence for each resource that the cluster does not yet show as declared.

    healthy: the number of healthy devices that the plugin offers, by resource; None if the node cannot be asked.
    before: the resources that were usable before the move.
    """
    for resource in declared.resources:
        name, pool = resource.name, pool_name(node, resource.name)
        offered, shown = seen.published.get(pool), seen.allocatable.get(name)
        wanted = None if healthy is None else healthy.get(name)
        if healthy is not None and wanted is None:
            yield f"{name}: the plugin on the node does not serve it yet"
        elif name in before and not (wanted if healthy is not None else _is_usable(offered, shown)):
            yield f"{name}: no device is healthy, but the node had one before the move"
        if resource.api == DRA:
            if not quantity.same(shown or "0", "0"):
                yield f"{name}: status.allocatable of the node still shows {shown}, as with the device plugin"
            if offered is None or (wanted and not offered):
                yield f"{name}: no ResourceSlice of the node has its devices"
        else:
            if offered is not None:
                yield f"{name}: ResourceSlices of the node still have its devices"
            if shown is None or (wanted is not None and not quantity.same(shown, str(wanted))):
                expected = "its devices" if wanted is None else str(wanted)
                yield f"{name}: status.allocatable of the node shows {shown or 'no key'} instead of {expected}"


def require_limits(api: Api, node: str, declared: Configuration, moves: Iterable[str]) -> None:
    """Raise DeploymentError if pods could no longer request resources by ``limits`` after these moves. Raises ApiError.

    api: with dry runs only.
    """
    by_claims = frozenset(_of_api(declared, DRA)).intersection(moves)
    if not by_claims:
        return
    uses = [device_classes.Use(node, by_claims, declared.dra.name)]
    # A class that stays without the name counts like one that changes.
    changes = [each._replace(before=None) for each in device_classes.converge(api, uses)]
    lost = device_classes.nameless(changes, uses)
    if lost:
        raise DeploymentError(
            f"{device_classes.only_by_claims(lost)}. If the pods have claims instead, set "
            "node_devices_pods_have_claims: true"
        )


def _of_api(declared: Configuration, api: str) -> list[str]:
    return [resource.name for resource in declared.resources if resource.api == api]
