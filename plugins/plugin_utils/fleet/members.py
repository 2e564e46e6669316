# SPDX-License-Identifier: Apache-2.0
"""Makes the entries of a profile: one for all nodes that are as declared, and others for the nodes that differ."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import extended_resources, manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import cdi
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import (
    other_daemonsets,
    profile,
    rollout,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet

from . import document, node, together


def statuses(
    name: str, cluster: DaemonSet, declared: Mapping[str, Any], named: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Return the profile's entry, then the entries of the nodes that differ. Reads nodes and pods in lists.

    name: of the profile. declared: the result of the action declaration. named: nodes whose hosts have entries of their
    own. Raises ApiError.
    """
    pods: dict[str, list[dict[str, Any]]] = {}
    for pod in cluster.pods():
        pods.setdefault(str(pod["spec"].get("nodeName")), []).append(pod)
    revision = cluster.revision()
    entries = [
        _entry(cluster, each, pods.get(each["metadata"]["name"], []), revision, declared)
        for each in profile.nodes(cluster)
        if each["metadata"]["name"] not in named
    ]
    other_builds = {of_node for _text, nodes in document.builds(entries) for of_node in nodes}
    alike, different = [], []
    for each in entries:
        (alike if each["state"] == "ok" and each["name"] not in other_builds else different).append(each)
    # No entry says "ok" for no node, while nodes differ.
    found = [_of_all(name, alike, len(different))] if alike or not different else []
    found += [{**each, "profile": name} for each in together.grouped(different)]
    return found + list(_of_strays(cluster, named))


def _entry(
    cluster: DaemonSet, of_node: dict[str, Any], pods: list[dict[str, Any]], revision: str, declared: Mapping[str, Any]
) -> dict[str, Any]:
    served = frozenset(resource["name"] for resource in declared["resources"])
    registered = extended_resources.registered_by(of_node)
    read = node.Read(
        declaration=declared,
        cluster=extended_resources.rows(of_node, extended_resources.Wanted({}, served, registered)),
        node_object=of_node,
        api_only=True,
        pod=rollout.seen(cluster, of_node, pods, revision),
        problems=tuple(_of_runtime(of_node, declared)),
    )
    return node.entry(of_node["metadata"]["name"], read)


def _of_runtime(of_node: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the node's runtime gives containers no CDI device. Its pod cannot ask the runtime."""
    name, _space, version = profile.runtime_of(of_node).partition(" ")
    if declared["needs_cdi"] and name == "containerd" and cdi.accepted_version(version) is None:
        yield f"containerd {version} gives containers no CDI devices: upgrade it, or set injection: device_nodes"


def _of_all(name: str, alike: list[dict[str, Any]], different: int) -> dict[str, Any]:
    """Return the profile's entry. alike: of the nodes that are as declared. different: how many other nodes it has."""
    notes = [f"{different} of {len(alike) + different} nodes differ, and have rows of their own"] * bool(different)
    notes += ["no node has these labels"] * (not alike)
    return {**together.summed(name, alike), "profile": name, "state": "ok", "problems": notes}


def _of_strays(cluster: DaemonSet, named: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield an entry for each label value that nodes have and no DaemonSet of ours."""
    for value, nodes in other_daemonsets.strays(cluster).items():
        label = f"label {manifests.NODE_LABEL}={value}"
        problem = f"{label} names no DaemonSet, so the node gets no devices: correct the label"
        entries = [node.entry(each, node.Read(problems=(problem,))) for each in nodes if each not in named]
        yield from together.shared(entries)
