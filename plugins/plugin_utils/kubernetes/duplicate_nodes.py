# SPDX-License-Identifier: Apache-2.0
"""Hosts that are one and the same node of a cluster: each would take away what the other one has written there."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple


class Host(NamedTuple):
    """A host of the inventory. node: its name in the cluster that ``kubeconfig``, a path, leads to."""

    name: str
    node: str
    kubeconfig: str


def found(hosts: Iterable[Host], cluster_of: Callable[[str], str]) -> Iterator[str]:
    """A sentence for each host that is the same node as one before it.

    cluster_of: a kubeconfig's path to what the files of one cluster have in common; asked only where it matters.
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
            yield sentence(duplicate.name, host.name, host.node)


def sentence(one: str | None, other: str | None, node: str) -> str:
    """Of two hosts."""
    return f"{one} and {other} are both the node {node} of this cluster: set node_devices_node_name to the name of each"
