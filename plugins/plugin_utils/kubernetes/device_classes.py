# SPDX-License-Identifier: Apache-2.0
"""Keeps the DeviceClasses of resources that pods get by ResourceClaims."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ....plugin.node_device_plugin.cluster import claims
from ....plugin.node_device_plugin.cluster.api import Api, LacksRights, NotFound, Place, again_after_conflict
from ....plugin.node_device_plugin.cluster.extended_resources import info_of
from ....plugin.node_device_plugin.cluster.manifests import device_classes
from ....plugin.node_device_plugin.declaration.cdi import version_tuple
from ....plugin.node_device_plugin.declaration.dra_api import API_VERSION, FIRST_KUBELET_FOR_LIMITS
from ....plugin.node_device_plugin.declaration.names import class_name
from .objects import Change, DeploymentError, is_ours

#: All DeviceClasses.
CLASSES = Place("deviceclasses", group=API_VERSION)
profile = device_classes.profile


class Use(NamedTuple):
    """A user of DeviceClasses in the play: a node, or a profile, which stands for nodes without names.

    user: the node's name, or the result of ``profile``. resources: those that pods get by ResourceClaims. driver: the
    name of its DRA driver.
    """

    user: str
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


def require_rights(
    api: Api, driver: str, resources: Collection[str], node: Mapping[str, Any] | None = None
) -> list[str]:
    """Return why a node cannot use the classes of these resources, one message each. api: with dry runs only.

    node: its object; None for a profile. Raises ApiError if the cluster has no DeviceClasses, or if the user may not
    keep them.
    """
    classes = api.list(CLASSES)
    trial = device_classes.content(driver, "nodedevices.kubernetes/trial", ())
    api.create(CLASSES, {**trial, "metadata": {"generateName": "nodedevices-trial-"}})
    named = sorted({device_classes.resource_of(each) for each in classes if is_ours(each)}.intersection(resources))
    refused = [
        f"kubelet {info_of(each, 'kubeletVersion')} starts pods without the devices of {', '.join(named)} "
        "that they have in their limits, and which the scheduler gives them by the DeviceClass (extendedResourceName): "
        "upgrade the kubelet to 1.36 or later, or set api: device_plugin"
        for each in _old([node] if node and named else [])
    ]
    return [*_of_others(classes, resources), *refused]


def only_by_claims(resources: Iterable[str]) -> str:
    """Return the sentence for resources whose classes have no extendedResourceName; empty without a resource."""
    names = ", ".join(sorted(resources))
    return names and (
        f"pods get {names} only by ResourceClaims, and not by limits: the DeviceClass has no extendedResourceName, "
        "which needs an API server and kubelets of Kubernetes 1.36 or later, and then a run of site.yml"
    )


def nameless(changes: Iterable[Change], uses: Iterable[Use]) -> set[str]:
    """Return the resources of which the API server has now stored a class without extendedResourceName."""
    stored = {each.what: each.after for each in changes if each.changed and each.after}
    classes = {str(CLASSES._replace(name=class_name(name))): name for use in uses for name in use.resources}
    return {classes[what] for what, after in stored.items() if what in classes and not after["extendedResourceName"]}


def without_name(api: Api, resources: Iterable[str]) -> list[str]:
    """Return the resources whose classes have no extendedResourceName. Raises ApiError."""
    found = {each["metadata"]["name"]: each for each in api.list(CLASSES, labelSelector=device_classes.SELECTOR)}
    its = {name: found.get(class_name(name)) for name in resources}
    return [name for name, each in its.items() if each is not None and not device_classes.resource_of(each)]


def allocated(api: Api, node: str) -> frozenset[str]:
    """Return the claims to which devices of a node are allocated, whether or not its plugin has prepared them.

    Raises ApiError; LacksRights if the node has DeviceClasses, and the user may not list the claims.
    """
    try:
        classes = api.list(CLASSES, labelSelector=device_classes.SELECTOR)
    except (LacksRights, NotFound):
        # Without the API or this right, no earlier run has created a class.
        return frozenset()
    # As in pool_name of the plugin, except for names that are too long.
    pools = {f"{node}/{each['metadata']['name']}" for each in classes if node in device_classes.nodes_of(each)}
    # A cluster may have many claims, which no node without a class needs.
    return frozenset(each.claim for each in claims.allocated(api) if each.pool in pools) if pools else frozenset()


def _changes(api: Api, uses: list[Use], drivers: Mapping[str, set[str]]) -> list[Change]:
    try:
        classes = api.list(CLASSES)
    except (LacksRights, NotFound):
        # Without the API or this right, no earlier run has created a class.
        if drivers:
            raise
        return []
    obstacles = list(_of_others(classes, drivers))
    if obstacles:
        raise DeploymentError("\n".join(obstacles))
    there = {each["metadata"]["name"]: each for each in classes if is_ours(each)}
    still = functools.cache(functools.partial(_still_there, api, functools.cache(lambda: api.names(Place("nodes")))))
    without_limits = functools.cache(lambda: {each["metadata"]["name"] for each in _old(api.list(Place("nodes")))})
    of_play = {use.user for use in uses}
    # Each class of a play, before and after. All are checked before the first write.
    puts = []
    for resource, names in sorted(drivers.items()):
        (driver,) = names
        mine = {use.user for use in uses if resource in use.resources}
        before = there.pop(class_name(resource), None)
        others = _others(before, of_play, still)
        users = mine | others
        is_named = bool(before and device_classes.resource_of(before)) or not _any_of(users, without_limits())
        wanted = device_classes.content(driver, resource, users, is_named)
        if others and _selectors(before) != _selectors(wanted):
            raise DeploymentError(
                f"deviceclass {wanted['metadata']['name']} selects other devices, and {', '.join(sorted(others))} uses "
                "it: set the same dra.driver in node_devices_settings for all nodes of a cluster, and run site.yml for "
                "all of them in one batch"
            )
        _require_room(wanted)
        puts.append((before, wanted))
    changes = [_put(api, before, wanted) for before, wanted in puts]
    for before in there.values():
        others = _others(before, of_play, still)
        changes.append(_keep(api, before, others) if others else _delete(api, before))
    return changes


def _old(nodes: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the nodes whose kubelets start a pod without the devices that the scheduler gave it for its limits."""
    for node in nodes:
        version = info_of(node, "kubeletVersion")
        if version and version_tuple(version)[:2] < FIRST_KUBELET_FOR_LIMITS:
            yield node


def _any_of(users: Iterable[str], nodes: Collection[str]) -> bool:
    """Return whether any of these nodes is a user, or may be of a profile that is a user."""
    return any(user in nodes or ("/" in user and nodes) for user in users)


def _of_others(classes: Iterable[Mapping[str, Any]], resources: Collection[str]) -> Iterator[str]:
    """Yield a message for each class of others that has the name of a class of ours, or gives pods its resource.

    The scheduler uses only one of two classes with the same extendedResourceName.
    """
    for each in classes:
        name, resource = each["metadata"]["name"], device_classes.resource_of(each)
        its = next((resource for resource in resources if class_name(resource) == name), None)
        if its is not None and not is_ours(each):
            yield (
                f"deviceclass {name} belongs to others, because it has no label {device_classes.SELECTOR}: delete it, "
                f"or rename the resource {its}"
            )
        elif its is None and resource in resources:
            yield (
                f"deviceclass {class_name(resource)} cannot have the extendedResourceName {resource}, because "
                f"deviceclass {name} has it: remove it from {name}, or rename the resource"
            )


def _require_room(wanted: Mapping[str, Any]) -> None:
    """Raise DeploymentError if a class has too many nodes for the API server."""
    size = device_classes.size(wanted)
    if size > device_classes.MOST_BYTES:
        raise DeploymentError(
            f"deviceclass {wanted['metadata']['name']}: its annotation with the names of "
            f"{len(device_classes.nodes_of(wanted))} nodes would have {size} bytes, and Kubernetes accepts "
            f"{device_classes.MOST_BYTES}: give some of these nodes a resource of another name"
        )


def _others(before: Mapping[str, Any] | None, of_play: set[str], still: Callable[[str], bool]) -> set[str]:
    """Return the users outside the play that a class has. still: whether a user is still there."""
    return {each for each in (device_classes.nodes_of(before) if before else ()) if each not in of_play and still(each)}


def _still_there(api: Api, nodes: Callable[[], set[str]], user: str) -> bool:
    """Return whether a node is in the cluster, or a profile's DaemonSet. nodes: returns the names of all nodes."""
    namespace, _slash, name = user.rpartition("/")
    if not namespace:
        return name in nodes()
    try:
        return api.get(Place("daemonsets", name, namespace, "apps/v1")) is not None
    except LacksRights:
        # A user without DaemonSets must not delete the class of another one.
        return True


def _selectors(found: Mapping[str, Any] | None) -> Any:
    return (found or {})["spec"].get("selectors")


def _shown(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the runs decide about a class."""
    return {
        "nodes": sorted(device_classes.nodes_of(found)),
        "selectors": _selectors(found),
        "extendedResourceName": device_classes.resource_of(found),
    }


def _put(api: Api, before: dict[str, Any] | None, wanted: dict[str, Any]) -> Change:
    place = CLASSES._replace(name=wanted["metadata"]["name"])
    if before is None:
        return Change(str(place), None, _shown(api.create(CLASSES, wanted)))
    shown = _shown(before)
    if shown == _shown(wanted):
        return Change(str(place), shown, shown)
    # With the version, the server refuses the change if another play has changed the class.
    version = {"resourceVersion": before["metadata"].get("resourceVersion")}
    content = {**wanted, "metadata": {**wanted["metadata"], **version}}
    # A server without the feature drops the extendedResourceName, so only its answer tells what changes.
    after = _shown(api.dry().merge(place, content))
    if after != shown and not api.dry_run:
        after = _shown(api.merge(place, content))
    return Change(str(place), shown, after)


def _keep(api: Api, before: dict[str, Any], others: set[str]) -> Change:
    """Record that only these nodes use a class."""
    metadata = {"name": before["metadata"]["name"], "annotations": device_classes.record(others)}
    return _put(api, before, {"metadata": metadata, "spec": before["spec"]})


def _delete(api: Api, before: dict[str, Any]) -> Change:
    place = CLASSES._replace(name=before["metadata"]["name"])
    api.delete(place, before["metadata"]["uid"])
    return Change(str(place), _shown(before), None)
