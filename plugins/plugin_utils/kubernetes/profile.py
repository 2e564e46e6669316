# SPDX-License-Identifier: Apache-2.0
"""The nodes of a profile: those that its DaemonSet selects and that have no configuration of their own."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ....plugin.node_device_plugin.cluster import manifests
from ....plugin.node_device_plugin.cluster.extended_resources import info_of, is_ready
from ....plugin.node_device_plugin.support.tables import some
from . import proof, rollout
from .daemonset import DaemonSet
from .objects import Change, DeploymentError


class Sample(NamedTuple):
    """Some of a profile's nodes. names: of nodes that are Ready. total: how many nodes the profile has."""

    names: tuple[str, ...]
    total: int


def nodes(cluster: DaemonSet) -> list[dict[str, Any]]:
    """Return the node objects, by name."""
    named = cluster.texts()
    found = [node for node in cluster.nodes() if node["metadata"]["name"] not in named]
    return sorted(found, key=lambda node: str(node["metadata"]["name"]))


def sample(cluster: DaemonSet, most: int, proven_first: bool) -> Sample:
    """Return at most ``most`` nodes.

    proven_first: whether nodes with a proof come first, so that a second run has nothing to prove. Otherwise nodes
    without a proof come first, so that later runs prove others.
    """
    found = nodes(cluster)
    ready = [node for node in found if is_ready(node)]
    ready.sort(key=lambda node: bool(proof.read_record(node)), reverse=proven_first)
    return Sample(tuple(node["metadata"]["name"] for node in ready[:most]), len(found))


def withdraw(
    cluster: DaemonSet, leaving: Collection[str], named: Iterable[str], timeout: float
) -> tuple[list[Change], list[str]]:
    """Let the plugins remove the CDI specs that no pod holds, and remove the default configuration and proofs.

    Return the changes, and a sentence about the nodes where the specs stay. leaving: nodes that this play removes.
    named: nodes that have hosts of their own. timeout: seconds without a node that has removed its specs, because a
    broken node must not stop an uninstall. Raises DeploymentError if hosts of other nodes still need the DaemonSet, and
    DeclarationError if the default configuration in the cluster is invalid.
    """
    others = sorted({*cluster.texts(), *named} - set(leaving))
    if others:
        raise DeploymentError(
            f"DaemonSet {cluster.deployment.name} still serves {some(others)}, which have hosts of their own: "
            "uninstall these hosts first, or remove the key of a node without a host from the ConfigMap"
        )
    stays: list[str] = []
    text = cluster.data().get(manifests.DEFAULT)
    if text is None:
        return [], stays
    found, configuration = nodes(cluster), manifests.read_configuration_text(text)
    if not cluster.api.dry_run and any(resource.injection == "cdi" for resource in configuration.resources):
        empty = manifests.configuration_text(configuration._replace(resources=()))
        cluster.write({}, {manifests.DEFAULT: empty})
        stays += _stays(cluster, [node["metadata"]["name"] for node in found if is_ready(node)], empty, timeout)
    changes = [change for node in found for change in cluster.forget_proofs(node)]
    removed = cluster.forget_configuration(manifests.DEFAULT)
    return changes + [change._replace(before=text) for change in removed], stays


def _stays(cluster: DaemonSet, names: Iterable[str], empty: str, timeout: float) -> Iterator[str]:
    """Yield a sentence if nodes have not applied the configuration ``empty``, which has no resources."""
    failed, why, deadline = [], "", time.monotonic() + timeout
    for name in names:
        try:
            left = max(0.0, deadline - time.monotonic())
            rollout.await_node(cluster, name, manifests.sha256_of(empty), None, left)
            deadline = time.monotonic() + timeout
        except DeploymentError as error:
            failed.append(name)
            why = why or str(error)
    if failed:
        yield f"CDI specs that the plugin wrote stay on node {some(failed)}: {why}"


def runtime_of(node: Mapping[str, Any]) -> str:
    """Return the name and version of a node's runtime, as the node object shows them."""
    return info_of(node, "containerRuntimeVersion").replace("://", " ")
