# SPDX-License-Identifier: Apache-2.0
"""Finds the reason why a node has no pod of the DaemonSet: a label, a taint or an unschedulable pod."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....plugin.node_device_plugin.cluster import manifests
from ....plugin.node_device_plugin.cluster.api import ApiError
from ....plugin.node_device_plugin.cluster.pods import name_of
from .daemonset import DaemonSet

# Taints that the DaemonSet controller tolerates for all pods that it creates
# (https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/#taints-and-tolerations).
_TOLERATED = frozenset(
    {
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/unschedulable",
    }
)


def reason(cluster: DaemonSet, node: Mapping[str, Any]) -> str:
    """Return the reason without a full stop; empty if nothing in the cluster explains it. node: the node object."""
    if not cluster.is_selected(node):
        return _not_selected(cluster, node)
    taints = [_shown(taint) for taint in (node.get("spec") or {}).get("taints") or () if _keeps_off(cluster, taint)]
    if taints:
        return (
            f"the node has the taint {', '.join(taints)}, which device_plugin_deployment.tolerations does not "
            "tolerate: add a toleration, or remove the taint"
        )
    try:
        pod = cluster.waiting_for(node["metadata"]["name"])
    except ApiError:
        return ""
    if pod is None:
        return ""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    said = next((each.get("message") for each in conditions if each.get("type") == "PodScheduled"), "")
    why = " ".join((said or "no attempt to schedule it yet").split())
    return f"pod {name_of(pod)} waits for the scheduler: {why}"


def _not_selected(cluster: DaemonSet, node: Mapping[str, Any]) -> str:
    labels, own = node["metadata"].get("labels") or {}, cluster.deployment
    if own.node_selector and manifests.NODE_LABEL in labels:
        value = labels[manifests.NODE_LABEL]
        return f"label {manifests.NODE_LABEL}={value} takes the node out of node_selector: remove the label"
    missing = [f"{key}={value}" for key, value in own.selector.items() if labels.get(key) != value]
    fix = "restore it, or remove the host from the inventory" if own.node_selector else "run site.yml"
    return f"the node does not have the label {', '.join(missing)}: {fix}"


def _keeps_off(cluster: DaemonSet, taint: Mapping[str, Any]) -> bool:
    """Return whether a taint stops the DaemonSet controller from creating the node's pod."""
    if taint.get("effect") == "PreferNoSchedule" or taint.get("key") in _TOLERATED:
        return False
    return not any(_tolerates(toleration, taint) for toleration in cluster.deployment.tolerations)


def _tolerates(toleration: Mapping[str, str], taint: Mapping[str, Any]) -> bool:
    """Return whether a toleration matches a taint. Source: core/v1, Toleration.ToleratesTaint."""
    if toleration.get("effect", taint.get("effect")) != taint.get("effect"):
        return False
    if toleration.get("key", taint.get("key")) != taint.get("key"):
        return False
    is_there = toleration.get("operator") == "Exists"
    return is_there or (toleration.get("value") or "") == (taint.get("value") or "")


def _shown(taint: Mapping[str, Any]) -> str:
    """Return a taint in kubectl's notation."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"
