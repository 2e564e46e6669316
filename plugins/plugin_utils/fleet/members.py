# SPDX-License-Identifier: Apache-2.0
"""Makes the entries of a profile: one for all nodes that are as declared, and one for each other node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import extended_resources, manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import cdi, parse_configuration
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification.proof_record import Record
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import (
    deployed,
    other_daemonsets,
    profile,
    proof,
    rollout,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet

from . import node


def statuses(name: str, cluster: DaemonSet, declared: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the profile's entry, then the entries of the nodes that differ. Reads nodes and pods in lists.

    name: of the profile. declared: the result of the action declaration. Raises ApiError.
    """
    pods: dict[str, list[dict[str, Any]]] = {}
    for pod in cluster.pods():
        pods.setdefault(str(pod["spec"].get("nodeName")), []).append(pod)
    revision = cluster.revision()
    entries = [
        _entry(cluster, each, pods.get(each["metadata"]["name"], []), revision, declared)
        for each in profile.nodes(cluster)
    ]
    alike = [entry for entry in entries if entry["state"] == "ok"]
    return [
        _of_all(name, entries, alike, [*_drift(cluster, declared), *other_daemonsets.strays(cluster)]),
        *(each for each in entries if each not in alike),
    ]


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
        notes=tuple(_unknown_of_runtime(cluster, of_node, declared)),
    )
    return node.entry(of_node["metadata"]["name"], read)


def _of_runtime(of_node: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[str]:
    """Yield why the node's runtime gives containers no CDI device. Its pod cannot ask the runtime."""
    name, _space, version = profile.runtime_of(of_node).partition(" ")
    if declared["needs_cdi"] and name == "containerd" and cdi.accepted_version(version) is None:
        yield f"containerd {version} gives containers no CDI devices: upgrade it, or set injection: device_nodes"


def _unknown_of_runtime(cluster: DaemonSet, of_node: Mapping[str, Any], declared: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the node object cannot show of a runtime whose CDI is off by default, until proofs show it."""
    shown = profile.runtime_of(of_node)
    if declared["needs_cdi"] and shown.startswith("containerd 1."):
        resources = parse_configuration(declared["configuration"]).resources
        record = Record(proof.read_record(of_node), cluster.deployment.image)
        if not all(record.holds(each, shown) for each in resources if each.injection == "cdi"):
            yield (
                f"{shown} gives containers CDI devices only if its configuration enables CDI, which the node object "
                "does not show: verify.yml proves a sample"
            )


def _drift(cluster: DaemonSet, declared: Mapping[str, Any]) -> Iterator[str]:
    """Yield how the default configuration in the cluster differs from the declared one."""
    found = cluster.data().get(manifests.DEFAULT)
    where = f"ConfigMap {cluster.deployment.namespace}/{cluster.deployment.name}"
    if found is None:
        yield (
            f"{where} with the default configuration is missing: the running plugins keep their configuration, but no "
            "new pod starts: run site.yml"
        )
    elif found != deployed.configuration_text(declared):
        yield f"the default configuration in {where} is not the declared one: run site.yml"


def _of_all(
    name: str, entries: list[dict[str, Any]], alike: list[dict[str, Any]], problems: list[str]
) -> dict[str, Any]:
    """Return the profile's entry.

    entries: of all its nodes. alike: of the nodes that are as declared. problems: of the profile itself.
    """
    different = len(entries) - len(alike)
    notes = [f"{different} of {len(entries)} nodes differ, and have rows of their own"] * bool(different)
    notes += ["no node has these labels"] * (not entries)
    notes += dict.fromkeys(problem for entry in alike for problem in entry["problems"])
    return {
        **node.entry(name, node.Read()),
        "state": "wrong" if problems else "ok",
        "problems": [*problems, *notes],
        "runtime": _common(alike, "runtime"),
        "kubelet": _common(alike, "kubelet"),
        "members": len(alike),
        "resources": [
            _sum([row for entry in alike for row in entry["resources"] if row["name"] == each])
            for each in sorted({row["name"] for entry in alike for row in entry["resources"]})
        ],
    }


def _common(entries: list[dict[str, Any]], key: str) -> Any:
    """Return a value that all entries have; None if they differ."""
    values = [entry[key] for entry in entries]
    return values[0] if values and all(value == values[0] for value in values) else None


def _sum(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row with the sums of the nodes' rows."""
    numbers = {key: sum(row[key] or 0 for row in rows) for key in ("capacity", "healthy")}
    return {**rows[0], **numbers, "state": "healthy" if numbers["capacity"] else "empty"}
