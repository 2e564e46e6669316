# SPDX-License-Identifier: Apache-2.0
"""Applies and deletes objects of a cluster, and returns what changed."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import FIELD_MANAGER, Api, Place

# Metadata that the API server writes itself.
_SERVERS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "annotations")


class DeploymentError(Exception):
    """Why a deployment is impossible, one message a line."""


class Change(NamedTuple):
    """One object's change, made or (in a dry run) planned.

    before, after: the object's content; None if missing.
    """

    what: str
    before: Any
    after: Any

    @property
    def changed(self) -> bool:
        return self.before != self.after


class Objects:
    """Writes objects of a cluster. dry_run: the API server checks every write and stores none."""

    def __init__(self, api: Api, dry_run: bool = False) -> None:
        self.api = api
        self.dry_run = dry_run

    def apply(self, place: Place, content: dict[str, Any]) -> Change:
        """Create or update an object. Raises DeploymentError if others' object has its name."""
        before = self.api.get(place)
        # The caller checked a namespace's owner, and does not change a namespace of others.
        if place.namespace:
            own(place, before)
        if self.dry_run and place.namespace and self.api.get(Place("namespaces", place.namespace)) is None:
            # A missing namespace refuses its objects, so the dry run uses the namespace default.
            content = {**content, "metadata": {**content["metadata"], "namespace": "default"}}
            place_now = place._replace(namespace="default")
        else:
            place_now = place
        after = self.api.apply(place_now, content, FIELD_MANAGER, self.dry_run)
        if place_now != place:
            after["metadata"]["namespace"] = place.namespace
        return Change(str(place), _stable(before), _stable(after))

    def delete(self, place: Place) -> Change:
        """Delete an object if it exists and is ours."""
        before = self.api.get(place)
        # An object that is terminating or belongs to others counts as missing.
        if before is not None and (before["metadata"].get("deletionTimestamp") or not is_ours(before)):
            before = None
        if before is not None:
            self.api.delete(place, before["metadata"]["uid"], self.dry_run)
        return Change(str(place), _stable(before), None)


def is_ours(found: Mapping[str, Any]) -> bool:
    """Whether an object has our labels."""
    labels = found["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in manifests.MANAGED_BY.items())


def own(place: Place, found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the object or None. Raises DeploymentError if an object of others has its name."""
    if found is None or is_ours(found):
        return found
    label = ", ".join(f"{key}={value}" for key, value in manifests.MANAGED_BY.items())
    raise DeploymentError(
        f"{place} belongs to others, because it has no label {label}: set another name or namespace in "
        "device_plugin_deployment, or delete it first"
    )


def _stable(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """An object without status and the metadata that the API server writes itself."""
    if found is None:
        return None
    result = {key: copy.deepcopy(value) for key, value in found.items() if key != "status"}
    for key in _SERVERS:
        result["metadata"].pop(key, None)
    return result
