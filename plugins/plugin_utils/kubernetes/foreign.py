# SPDX-License-Identifier: Apache-2.0
"""Finds foreign device plugins from a node object's resources, if only the API reaches the node."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Place
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.extended_resources import (
    registered_by,
)

from .daemonset import DaemonSet
from .objects import DeploymentError

# Seconds until a kubelet reports that a plugin ended (kubelets report every 10 s), and between two checks.
_TOLD = 15.0
_PAUSE = 1.0


def refuse(cluster: DaemonSet, node: str, names: Iterable[str], places: Iterable[Mapping[str, str]]) -> None:
    """Raise DeploymentError if a foreign device plugin serves one of these resources on a node.

    Also raises ApiError and DeclarationError.
    places: our other DaemonSets with a configuration of the node, from other_daemonsets.before.
    """
    ours = _resources(cluster.texts().get(node))
    for place in places:
        config_map = cluster.api.get(Place("configmaps", place["name"], place["namespace"])) or {}
        ours |= _resources((config_map.get("data") or {}).get(node))
    asked = set(names) - ours
    deadline = time.monotonic() + _TOLD
    while asked:
        taken = sorted(asked & registered_by(cluster.api.node(node)))
        if not taken:
            return
        if time.monotonic() >= deadline:
            raise DeploymentError(
                f"another device plugin already serves {', '.join(taken)} on node {node}, as its node object shows: "
                "remove that plugin first, or set device_plugin_takeover: true and remove it right after the run"
            )
        time.sleep(_PAUSE)


def _resources(text: str | None) -> set[str]:
    """Return the names of a configuration's resources."""
    return {resource.name for resource in manifests.read_configuration_text(text).resources} if text else set()
