# SPDX-License-Identifier: Apache-2.0
"""Keeps the DeviceClasses of resources that pods get by ResourceClaims, and finds the claims on a node's devices."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import device_classes
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    Api,
    LacksRights,
    NotFound,
    Place,
    again_after_conflict,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration.dra_api import API_VERSION

from .objects import Change, DeploymentError, is_ours

_CLAIMS = Place("resourceclaims", group=API_VERSION)


class Use(NamedTuple):
    """A node of the play. resources: those that pods get by ResourceClaims. driver: the name of its DRA driver."""

    node: str
    resources: frozenset[str]
    driver: str


def converge(api: Api, uses: Iterable[Use]) -> list[Change]:
    """Create, change and delete DeviceClasses for the nodes of a play. A class that another node uses stays.

    Raises ApiError and DeploymentError.
    """
    uses = list(uses)
    drivers: dict[str, set[str]] = {}
    for use in uses:
        for resource in use.resources:
            drivers.setdefault(resource, set()).add(use.driver)
    for resource, names in sorted(drivers.items()):
        if len(names) > 1:
            raise DeploymentError(
                f"{resource}: the hosts have different names of the DRA driver ({', '.join(sorted(names))}): set the "
                "same dra.driver in node_devices_settings for all nodes of a cluster"
            )
    return again_after_conflict(lambda: _changes(api, uses, drivers))


def require_rights(api: Api, driver: str) -> None:
    """Raise ApiError if the cluster has no DeviceClasses, or if the user may not keep them. api: with dry runs only."""
    api.list(device_classes.CLASSES, labelSelector=device_classes.SELECTOR)
    trial = device_classes.content(driver, "nodedevices.kubernetes/trial", ())
    api.create(device_classes.CLASSES, {**trial, "metadata": {"generateName": "nodedevices-trial-"}})


def _changes(api: Api, uses: list[Use], drivers: Mapping[str, set[str]]) -> list[Change]:
    try:
        there = {
            each["metadata"]["name"]: each
            for each in api.list(device_classes.CLASSES, labelSelector=device_classes.SELECTOR)
        }
    except (LacksRights, NotFound):
        # Without the API or this right, no earlier run has created a class.
        if drivers:
            raise
        return []
    still = functools.cache(lambda: {each["metadata"]["name"] for each in api.list(Place("nodes"))})
    of_play = {use.node for use in uses}
    changes = []
    for resource, names in sorted(drivers.items()):
        (driver,) = names
        mine = {use.node for use in uses if resource in use.resources}
        wanted = device_classes.content(driver, resource, mine)
        before = there.pop(wanted["metadata"]["name"], None)
        others = _others(before, of_play, still)
        if others and _selectors(before) != _selectors(wanted):
            raise DeploymentError(
                f"deviceclass {wanted['metadata']['name']} selects other devices, and {', '.join(sorted(others))} uses "
                "it: set the same dra.driver in node_devices_settings for all nodes of a cluster"
            )
        changes.append(_put(api, before, device_classes.content(driver, resource, mine | others)))
    for before in there.values():
        others = _others(before, of_play, still)
        changes.append(_keep(api, before, others) if others else _delete(api, before))
    return changes


def _others(before: Mapping[str, Any] | None, of_play: set[str], still: Callable[[], set[str]]) -> set[str]:
    """Return the nodes outside the play that use a class. A node that left the cluster uses none."""
    others = set(device_classes.nodes_of(before)) - of_play if before else set()
    return others & still() if others else others


def _selectors(found: Mapping[str, Any] | None) -> Any:
    return (found or {})["spec"].get("selectors")


def _shown(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the runs decide about a class."""
    return {"nodes": sorted(device_classes.nodes_of(found)), "selectors": _selectors(found)}


def _put(api: Api, before: dict[str, Any] | None, wanted: dict[str, Any]) -> Change:
    place = device_classes.CLASSES._replace(name=wanted["metadata"]["name"])
    if before is None:
        found = api.get(place)
        if found is not None and not is_ours(found):
            raise DeploymentError(
                f"{place} belongs to others, because it has no label {device_classes.SELECTOR}: delete it, or rename "
                "the resource"
            )
        api.create(device_classes.CLASSES, wanted)
        return Change(str(place), None, _shown(wanted))
    change = Change(str(place), _shown(before), _shown(wanted))
    if change.changed:
        # With the version, the server refuses the change if another play has changed the class.
        version = {"resourceVersion": before["metadata"].get("resourceVersion")}
        api.merge(place, {**wanted, "metadata": {**wanted["metadata"], **version}})
    return change


def _keep(api: Api, before: dict[str, Any], others: set[str]) -> Change:
    """Record that only these nodes use a class."""
    metadata = {"name": before["metadata"]["name"], "annotations": device_classes.record(others)}
    return _put(api, before, {"metadata": metadata, "spec": before["spec"]})


def _delete(api: Api, before: dict[str, Any]) -> Change:
    place = device_classes.CLASSES._replace(name=before["metadata"]["name"])
    api.delete(place, before["metadata"]["uid"])
    return Change(str(place), _shown(before), None)


def claims(api: Api, driver: str, node: str) -> Iterator[str]:
    """Yield each claim on devices of a node, such as ``default/cam (pod viewer)``. Raises ApiError."""
    try:
        found = api.list(_CLAIMS)
    except NotFound:
        return
    for claim in found:
        status = claim.get("status") or {}
        results = ((status.get("allocation") or {}).get("devices") or {}).get("results") or ()
        if any(each["driver"] == driver and each["pool"].startswith(f"{node}/") for each in results):
            users = [f"{each['resource'].rstrip('s')} {each['name']}" for each in status.get("reservedFor") or ()]
            metadata = claim["metadata"]
            yield f"{metadata['namespace']}/{metadata['name']}" + (f" ({', '.join(users)})" if users else "")
