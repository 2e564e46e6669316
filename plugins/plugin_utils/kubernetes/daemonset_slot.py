# SPDX-License-Identifier: Apache-2.0
"""Whether a node has room for the DaemonSet's pod, whose priority would have another pod ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests, pod_slots
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, Place


def full(api: Api, nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """The names of the node objects that take no further pod. Raises ApiError."""
    return [
        node["metadata"]["name"]
        for node in nodes
        if (slots := pod_slots.of_node(api, node)) is not None and not slots.free
    ]


def refusal(api: Api, node: str, deployment: manifests.Deployment) -> str:
    """Why its pod must not come to the node yet, in a sentence; empty if it may. Raises ApiError."""
    if not deployment.priority_class:
        return ""
    found = api.get(Place("nodes", node))
    # Where the node has the label, its pod has its slot, or another one of ours that goes. One that is not there is
    # named by whoever needs it.
    if found is None or manifests.NODE_LABEL in (found["metadata"].get("labels") or {}):
        return ""
    slots = pod_slots.of_node(api, found)
    if slots is None or slots.free:
        return ""
    return (
        f"node {node} has no free pod slot (its kubelet takes {slots.total}), and for the DaemonSet's pod, of priority "
        f"class {deployment.priority_class}, another pod would be ended: free a slot, raise maxPods of the kubelet, or "
        f"set device_plugin_deployment.priority_class to '', and the pod waits"
    )
