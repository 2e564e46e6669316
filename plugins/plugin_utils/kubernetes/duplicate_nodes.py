# SPDX-License-Identifier: Apache-2.0
"""Finds hosts that are the same node of a cluster. Each host would undo the other host's changes."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from ....plugin.node_device_plugin.cluster import kubeconfig, manifests
from ....plugin.node_device_plugin.cluster.api import Api, ApiError, Place
from . import other_daemonsets


class Host(NamedTuple):
    """A host of the inventory. node: its name in the cluster. kubeconfig: path of the cluster's kubeconfig."""

    name: str
    node: str
    kubeconfig: str


def found(hosts: Iterable[Host], cluster_of: Callable[[str], str]) -> Iterator[str]:
    """Yield one message for each host that is the same node as an earlier host.

    cluster_of: returns a kubeconfig's cluster identity. Called only if two hosts have the same node name.
    """
    known: dict[str, list[Host]] = {}
    cluster = functools.cache(cluster_of)

    def are_one(one: Host, other: Host) -> bool:
        return one.kubeconfig == other.kubeconfig or cluster(one.kubeconfig) == cluster(other.kubeconfig)

    for host in hosts:
        namesakes = known.setdefault(host.node, [])
        duplicate = next((each for each in namesakes if are_one(each, host)), None)
        if duplicate is None:
            namesakes.append(host)
        else:
            yield (
                f"hosts {duplicate.name} and {host.name} both have the node name {host.node} in this cluster: set "
                "node_devices_node_name of each host to its own node's name"
            )


class Profile(NamedTuple):
    """A host that stands for all nodes of a DaemonSet."""

    name: str
    kubeconfig: str
    deployment: manifests.Deployment


def overlapping(profiles: Iterable[Profile], cluster_of: Callable[[str], str]) -> Iterator[str]:
    """Yield one message for each two profiles that may serve the same nodes. cluster_of: see ``found``."""
    cluster = functools.cache(cluster_of)
    for one, other in itertools.combinations(profiles, 2):
        first, second = one.deployment, other.deployment
        is_one_daemon_set = (first.namespace, first.name) == (second.namespace, second.name)
        if not (is_one_daemon_set or other_daemonsets.may_overlap(first.selector, second.selector)):
            continue
        if one.kubeconfig != other.kubeconfig and cluster(one.kubeconfig) != cluster(other.kubeconfig):
            continue
        if is_one_daemon_set:
            yield (
                f"{one.name} and {other.name} are profiles of one DaemonSet: set another device_plugin_deployment.name "
                "for one"
            )
        else:
            selectors = ((each.name, other_daemonsets.shown(each.deployment.selector)) for each in (one, other))
            yield other_daemonsets.two_plugins(*(f"the labels of profile {name} ({of})" for name, of in selectors))


def identity(path: str) -> str:
    """Return a cluster's identity: the uid of the namespace kube-system, or else the API server's address."""
    try:
        access = kubeconfig.read(path)
        namespace = Api(access).get(Place("namespaces", "kube-system"))
        return str(namespace["metadata"]["uid"]) if namespace else f"{access.server} {access.proxy}"
    except ApiError:
        return f"{access.server} {access.proxy}"
    except kubeconfig.KubeconfigError:
        # A later check reports the error for each host.
        return path
