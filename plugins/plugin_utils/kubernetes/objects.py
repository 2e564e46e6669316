# SPDX-License-Identifier: Apache-2.0
"""Objects of a cluster as we want them: applied and deleted, with what that changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import FIELD_MANAGER, Api, Place

# Of an object, what the API server writes by itself.
_SERVERS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "annotations")


class DeploymentError(Exception):
    """What cannot be done, one sentence a line."""


class Change(NamedTuple):
    """What was done to one object, or would be. before, after: its content; None where it is not there."""

    what: str
    before: Any
    after: Any

    @property
    def changed(self) -> bool:
        return self.before != self.after


class Objects:
    """dry_run: the API server goes through everything, and keeps nothing."""

    def __init__(self, api: Api, dry_run: bool = False) -> None:
        self.api = api
        self.dry_run = dry_run

    def apply(self, place: Place, content: dict[str, Any]) -> Change:
        """Make an object what is wanted. Raises DeploymentError for one that somebody else made under our name."""
        before = self.api.get(place)
        # Whose a namespace is, is looked at before: one of others is left as it is.
        if place.namespace:
            own(place, before)
        if self.dry_run and place.namespace and self.api.get(Place("namespaces", place.namespace)) is None:
            # A namespace that is yet to be made refuses what would be in it: the server goes through it elsewhere.
            content = {**content, "metadata": {**content["metadata"], "namespace": "default"}}
            place_now = place._replace(namespace="default")
        else:
            place_now = place
        after = self.api.apply(place_now, content, FIELD_MANAGER, self.dry_run)
        if place_now != place:
            after["metadata"]["namespace"] = place.namespace
        return Change(str(place), _stable(before), _stable(after))

    def delete(self, place: Place) -> Change:
        """Take an object away, if it is there."""
        before = self.api.get(place)
        # What somebody else made under our name is theirs.
        if before is not None and (before["metadata"].get("deletionTimestamp") or not is_ours(before)):
            before = None
        if before is not None:
            self.api.delete(place, before["metadata"]["uid"], self.dry_run)
        return Change(str(place), _stable(before), None)


def is_ours(found: Mapping[str, Any]) -> bool:
    """Whether an object has our label."""
    labels = found["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in manifests.MANAGED_BY.items())


def own(place: Place, found: dict[str, Any] | None) -> dict[str, Any] | None:
    """The same, or None where there is none. Raises DeploymentError for one that somebody else made under our name."""
    if found is None or is_ours(found):
        return found
    label = ", ".join(f"{key}={value}" for key, value in manifests.MANAGED_BY.items())
    raise DeploymentError(
        f"{place} was there before us, and is not ours to change (it has no label {label}): give "
        f"device_plugin_deployment another name or namespace, or delete it first"
    )


def _stable(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """An object without what the API server writes by itself."""
    if found is None:
        return None
    result = {key: copy.deepcopy(value) for key, value in found.items() if key != "status"}
    for key in _SERVERS:
        result["metadata"].pop(key, None)
    return result
