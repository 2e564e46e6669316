# SPDX-License-Identifier: Apache-2.0
"""Checks for a free pod slot on a node. On a full node, the DaemonSet's pod may preempt another pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests, pod_slots
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, Place


def full(api: Api, nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the names of the nodes without a free pod slot. Raises ApiError."""
    return [
        node["metadata"]["name"]
        for node in nodes
        if (slots := pod_slots.of_node(api, node)) is not None and not slots.free
    ]


def refusal(api: Api, node: str, deployment: manifests.Deployment) -> str:
    """Return why the node must not get the DaemonSet's pod yet; empty if the node may get the pod. Raises ApiError."""
    if not deployment.priority_class:
        return ""
    found = api.get(Place("nodes", node))
    # A labelled node already has a slot for the pod, or another DaemonSet of ours frees a slot. If a caller needs a
    # missing node, the caller reports the error.
    if found is None or manifests.NODE_LABEL in (found["metadata"].get("labels") or {}):
        return ""
    slots = pod_slots.of_node(api, found)
    if slots is None or slots.free:
        return ""
    return (
        f"node {node} has no free pod slot (its kubelet accepts {slots.total} pods), so the DaemonSet's pod, with "
        f"priority class {deployment.priority_class}, would preempt another pod: free a slot, raise the kubelet's "
        "maxPods, or set device_plugin_deployment.priority_class: '' to let the pod wait"
    )
