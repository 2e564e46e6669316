# SPDX-License-Identifier: Apache-2.0
"""Makes the kubelet look at a pod now, and reads what the kubelet and the scheduler said of pods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....plugin.node_device_plugin.cluster.api import Api, ApiError, Place

# The annotation whose change makes the kubelet synchronise the pod. Its name is older than its use for claims.
_LOOK = "nodedevices.kubernetes/configuration"


def let_look(api: Api, pod: Mapping[str, Any], reason: str) -> None:
    """Make the kubelet synchronise a pod now. reason: a different text for each call. Raises ApiError.

    Without it, the kubelet mounts a changed ConfigMap, and prepares a claim again after a failure, only at its next
    synchronisation, 60 to 90 s after the last one (syncFrequency, and pkg/kubelet/pod_workers.go).
    """
    place = Place("pods", pod["metadata"]["name"], pod["metadata"].get("namespace", ""))
    api.merge(place, {"metadata": {"annotations": {_LOOK: reason}}})


def warnings(api: Api, namespace: str, **selectors: str) -> dict[str, str]:
    """Return the last warning event of each object of a namespace, by the object's name.

    It is empty if the user may not list events, because events only explain a failure.
    """
    try:
        events = api.list(Place("events", namespace=namespace), **selectors)
    except ApiError:
        return {}
    events.sort(key=lambda each: each.get("lastTimestamp") or each.get("eventTime") or "")
    return {
        each["involvedObject"]["name"]: " ".join(each.get("message", "").split())
        for each in events
        if each.get("type") == "Warning"
    }


def warning(api: Api, namespace: str, name: str) -> str:
    """Return the last warning event of an object; empty without one."""
    return warnings(api, namespace, fieldSelector=f"involvedObject.name={name}").get(name, "")
