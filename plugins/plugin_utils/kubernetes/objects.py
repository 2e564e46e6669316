# SPDX-License-Identifier: Apache-2.0
"""Applies and deletes objects of a cluster, and returns the changes."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from ....plugin.node_device_plugin.cluster import manifests
from ....plugin.node_device_plugin.cluster.api import Api, Place

# Metadata that the API server writes.
_SERVERS = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "annotations")


class DeploymentError(Exception):
    """A deployment is impossible. The text has one message per line."""


class Change(NamedTuple):
    """An object's change, which in a dry run is only planned. before, after: the object's content; None if missing."""

    what: str
    before: Any
    after: Any

    @property
    def changed(self) -> bool:
        return self.before != self.after


def outcome(changes: Iterable[Change]) -> dict[str, Any]:
    """Return the changes as a task's result."""
    changed = [change for change in changes if change.changed]
    return {
        "changed": bool(changed),
        "what": [change.what for change in changed],
        "diff": [
            {
                "before": _shown(change.before),
                "after": _shown(change.after),
                "before_header": change.what,
                "after_header": change.what,
            }
            for change in changed
        ],
    }


def _shown(content: Any) -> str:
    if content is None:
        return ""
    return content if isinstance(content, str) and "\n" in content else json.dumps(content, indent=2) + "\n"


def apply(api: Api, place: Place, content: dict[str, Any]) -> Change:
    """Create or update an object. Raises DeploymentError if an object of another owner has the name.

    A dry run comes first, because a request that changes nothing is still a write to webhooks and audit logs.
    """
    before = api.get(place)
    # Callers check a namespace's owner themselves.
    if place.namespace:
        own(place, before)
    place_now = place
    if api.dry_run and place.namespace and api.get(Place("namespaces", place.namespace)) is None:
        # Use the namespace default, because the API server rejects objects in a missing namespace.
        place_now = place._replace(namespace="default")
        content = {**content, "metadata": {**content["metadata"], "namespace": "default"}}
    after = before and api.dry().apply(place_now, content)
    if after is None or not (api.dry_run or _stored(before or {}) == _stored(after)):
        after = api.apply(place_now, content)
    if place.namespace:
        after["metadata"]["namespace"] = place.namespace
    return Change(str(place), _stable(before), _stable(after))


def delete(api: Api, place: Place) -> Change:
    """Delete an object if it exists and is ours."""
    before = api.get(place)
    # A terminating object or another owner's object counts as missing.
    if before is not None and (before["metadata"].get("deletionTimestamp") or not is_ours(before)):
        before = None
    if before is not None:
        api.delete(place, before["metadata"]["uid"])
    return Change(str(place), _stable(before), None)


def is_ours(found: Mapping[str, Any]) -> bool:
    """Return whether an object has our labels."""
    labels = found["metadata"].get("labels") or {}
    return all(labels.get(key) == value for key, value in manifests.MANAGED_BY.items())


def own(place: Place, found: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the object or None. Raises DeploymentError if the object belongs to another owner."""
    if found is None or is_ours(found):
        return found
    label = ", ".join(f"{key}={value}" for key, value in manifests.MANAGED_BY.items())
    raise DeploymentError(
        f"{place} belongs to others, because it has no label {label}: set another name or namespace in "
        "device_plugin_deployment, or delete it first"
    )


def _stored(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a write of an object would store. A dry run has no new version, and others write the status."""
    metadata = {key: value for key, value in found["metadata"].items() if key != "resourceVersion"}
    return {**found, "metadata": metadata, "status": None}


def _stable(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return an object without its status and without the metadata that the API server writes."""
    if found is None:
        return None
    result = {key: copy.deepcopy(value) for key, value in found.items() if key != "status"}
    for key in _SERVERS:
        result["metadata"].pop(key, None)
    return result
