# SPDX-License-Identifier: Apache-2.0
"""Groups a play's hosts by DaemonSet. An inventory may have several clusters, each with several DaemonSets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ....plugin.node_device_plugin.cluster import manifests
from . import deployed


class Group(NamedTuple):
    """A DaemonSet and its hosts.

    hosts: empty if no host is known. results: of the module daemonset for these hosts.
    cluster: the cluster's identity. kubeconfig: the path of a kubeconfig of the cluster.
    problems: a message for each setting in which hosts differ.
    """

    cluster: str
    kubeconfig: str
    deployment: manifests.Deployment
    hosts: list[str]
    results: list[Mapping[str, Any]]
    problems: list[str]


def of(results: Iterable[Mapping[str, Any]], own: Mapping[str, Any], cluster_of: Callable[[str], str]) -> list[Group]:
    """Return one group for each DaemonSet, in the hosts' order. Without results, return one group without hosts.

    Raises DeclarationError.
    results: of the module daemonset for single nodes, each with ``host``, ``kubeconfig`` and ``deployment``.
    own: the current task's arguments, which replace a result's missing values.
    cluster_of: returns a kubeconfig's cluster identity. Called only if there are several kubeconfigs.
    """
    places = [({**own, **result}, result) for result in list(results) or [{}]]
    paths = {place["kubeconfig"] for place, _result in places}
    clusters = {path: cluster_of(path) if len(paths) > 1 else path for path in paths}
    found: dict[tuple[str, str, str], Group] = {}
    for place, result in places:
        deployment = deployed.parse(place.get("deployment", {}))
        host, cluster = place.get("host"), clusters[place["kubeconfig"]]
        new = Group(cluster, place["kubeconfig"], deployment, [], [], [])
        group = found.setdefault((cluster, deployment.namespace, deployment.name), new)
        group.problems.extend(_differences(host, deployment, group))
        group.hosts.extend([host] if host else [])
        group.results.extend([result] if result else [])
    return list(found.values())


def note_namesakes(found: Iterable[Group]) -> None:
    """Add a problem for each DaemonSet that has another DaemonSet's name in the same cluster.

    Both DaemonSets would select the same nodes.
    """
    first: dict[tuple[str, str], Group] = {}
    for group in found:
        deployment = group.deployment
        other = first.setdefault((group.cluster, deployment.name), group)
        if other is not group:
            group.problems.append(
                f"device_plugin_deployment.namespace: is {deployment.namespace!r} for {', '.join(group.hosts)}, but "
                f"{other.deployment.namespace!r} for {', '.join(other.hosts)}, and both DaemonSets select their nodes "
                f"by the same name {deployment.name}: set another device_plugin_deployment.name for one of them"
            )


def _differences(host: str | None, deployment: manifests.Deployment, group: Group) -> Iterable[str]:
    for field in deployment._fields:
        one, other = getattr(group.deployment, field), getattr(deployment, field)
        if one != other:
            yield (
                f"device_plugin_deployment.{field}: is {other!r} for {host}, but {one!r} for {group.hosts[0]}: all "
                "hosts of a DaemonSet need the same value, so set it, or another device_plugin_deployment.name for "
                "one of them"
            )
