# SPDX-License-Identifier: Apache-2.0
"""Finds what else serves devices of a node: our other DaemonSets, and foreign device plugins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ....plugin.node_device_plugin.cluster import manifests
from ....plugin.node_device_plugin.cluster.api import Place
from ....plugin.node_device_plugin.cluster.extended_resources import registered_by
from . import rollout
from .daemonset import DaemonSet
from .objects import DeploymentError
from .waiting import until

# Seconds until a kubelet reports that a plugin ended (kubelets report every 10 s), and between two checks.
_TOLD = 15.0
_PAUSE = 1.0
# The API server's limit for a label's value.
_LONGEST_VALUE = 63


def _others(cluster: DaemonSet) -> Iterator[tuple[dict[str, str], dict[str, str]]]:
    """Yield our other DaemonSets, each with the labels that it selects. Raises ApiError."""
    own = (cluster.deployment.namespace, cluster.deployment.name)
    selector = ",".join(f"{key}={value}" for key, value in manifests.LABELS.items())
    for each in cluster.api.list(Place("daemonsets", group="apps/v1"), labelSelector=selector):
        namespace, name = each["metadata"]["namespace"], each["metadata"]["name"]
        if (namespace, name) != own and not each["metadata"].get("deletionTimestamp"):
            selects = each["spec"]["template"]["spec"].get("nodeSelector") or {}
            yield {"namespace": namespace, "name": name}, selects


def before(cluster: DaemonSet, node: str = "") -> list[dict[str, str]]:
    """Return the DaemonSets that must drop the node once the pod of ``cluster`` runs there; none for a profile.

    Raises ApiError, and DeploymentError if another DaemonSet's pod may run beside that pod.
    """
    own, others = cluster.deployment, list(_others(cluster))
    for place, selects in others:
        where = f"DaemonSet {place['name']} in namespace {place['namespace']}"
        if selects.get(manifests.NODE_LABEL) == own.name == place["name"]:
            raise DeploymentError(
                f"{where} has the same name as the new one in namespace {own.namespace}, so both would select the "
                f"same nodes by the label value {own.name}: set another device_plugin_deployment.name as well, so "
                f"that the nodes move, or run uninstall.yml with namespace {place['namespace']} first"
            )
        if own.node_selector and may_overlap(own.node_selector, selects):
            raise DeploymentError(two_plugins("these labels", f"those of {where} ({shown(selects)})"))
    return [place for place, _selects in others if node in _texts(cluster, **place)]


def may_overlap(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether a node may have the labels of two DaemonSets."""
    # A DaemonSet that selects the labels of a pool does not serve a node that a play has labelled.
    if (manifests.NODE_LABEL in one) != (manifests.NODE_LABEL in other):
        return False
    # Labels that require different values of one key are disjoint.
    return all(other.get(key, value) == value for key, value in one.items())


def two_plugins(one: str, other: str) -> str:
    """Return the message for two DaemonSets that may select the same nodes. one, other: their labels in words."""
    return (
        f"device_plugin_deployment.node_selector: a node may have {one} and {other}, and would then get two plugins: "
        "select different values of one label"
    )


def shown(labels: Mapping[str, str]) -> str:
    """Return labels as kubectl shows them."""
    return ", ".join(f"{key}={value}" for key, value in labels.items())


def strays(cluster: DaemonSet) -> dict[str, list[str]]:
    """Return the nodes of each label value that no DaemonSet of ours has. Raises ApiError."""
    names = {place["name"] for place, _selects in _others(cluster)} | {cluster.deployment.name}
    # Let the server compare the values, because it would otherwise send all nodes. A longer name is no label's value.
    values, label = ",".join(sorted(name for name in names if len(name) <= _LONGEST_VALUE)), manifests.NODE_LABEL
    found: dict[str, list[str]] = {}
    for node in cluster.api.list(Place("nodes"), labelSelector=f"{label},{label} notin ({values})"):
        found.setdefault(node["metadata"]["labels"][label], []).append(node["metadata"]["name"])
    return found


def left(cluster: DaemonSet, node: str) -> list[dict[str, str]]:
    """Return our other DaemonSets that have a configuration for a removed node. Raises ApiError."""
    return [place for place, _selects in _others(cluster) if node in _texts(cluster, **place)]


def expanded(results: list[Mapping[str, Any]], own: bool) -> list[dict[str, Any]]:
    """Return one result for each DaemonSet in each result's ``other_daemonsets``. own: whether to keep the results."""
    found = [dict(result) for result in results] if own else []
    return found + [
        {**result, "deployment": place} for result in results for place in result.get("other_daemonsets", ())
    ]


def refuse_foreign(cluster: DaemonSet, node: str, names: Iterable[str], places: Iterable[Mapping[str, str]]) -> None:
    """Raise DeploymentError if a foreign device plugin serves one of these resources, as the node object shows.

    Also raises ApiError and DeclarationError. places: our other DaemonSets with a configuration of the node, see
    ``before``.
    """
    ours = _resources(cluster.texts().get(node))
    for place in places:
        ours |= _resources(_texts(cluster, **place).get(node))
    asked = set(names) - ours

    def look(is_late: bool) -> bool | None:
        found = asked & registered_by(cluster.api.node(node))
        # A plugin without a key serves the default, or what its key said before somebody deleted the ConfigMap.
        taken = sorted(found - rollout.served(cluster, node)) if found else []
        if taken and is_late:
            raise DeploymentError(
                f"another device plugin already serves {', '.join(taken)} on node {node}, as its node object shows: "
                "remove that plugin first, or set device_plugin_takeover: true and remove it right after the run"
            )
        return None if taken else True

    until(look, _TOLD, _PAUSE)


def _texts(cluster: DaemonSet, namespace: str, name: str) -> dict[str, str]:
    """Return the configurations in another DaemonSet's ConfigMap by node. Raises ApiError."""
    return (cluster.api.get(Place("configmaps", name, namespace)) or {}).get("data") or {}


def _resources(text: str | None) -> set[str]:
    """Return the names of a configuration's resources."""
    return {resource.name for resource in manifests.read_configuration_text(text).resources} if text else set()
