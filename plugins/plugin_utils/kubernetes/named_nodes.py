# SPDX-License-Identifier: Apache-2.0
"""Finds the nodes of a cluster that have a host of their own in the inventory."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean

from ....plugin.node_device_plugin.cluster import manifests
from .. import profiles
from ..declaration import plain
from . import deployed, duplicate_nodes


def found(
    variables: Mapping[str, Any], hosts: Iterable[str], kubeconfig: str, deployment: manifests.Deployment | None = None
) -> tuple[set[str], list[str]]:
    """Return the nodes' names, and at most one sentence, about the hosts whose nodes are unknown.

    variables: of a task. hosts: profiles do not count. kubeconfig: the cluster's. deployment: only hosts with this
    DaemonSet; None for all hosts.
    """
    hostvars, names, unknown = variables.get("hostvars", {}), set(), {}
    identity = functools.cache(duplicate_nodes.identity)
    for host in hosts:
        try:
            of_host = hostvars[host]
            if boolean(plain(of_host.get(profiles.VARIABLE)) or False, strict=False):
                continue
            if deployment and not _has(of_host, deployment):
                continue
            path = plain(of_host.get("node_devices_kubeconfig"))
            if path and (path == kubeconfig or identity(path) == identity(kubeconfig)):
                # A task of this run knows a name that is an expression with facts.
                configured = plain(of_host.get("device_plugin_configured")) or {}
                names.add(configured.get("node") or plain(of_host.get("node_devices_node_name")) or plain(host))
        except Exception as error:  # an expression may fail in any way
            unknown[plain(host)] = str(error)
    more = f" and {len(unknown) - 1} other hosts" if len(unknown) > 1 else ""
    why = [
        f"the nodes of host {host}{more} count as nodes that no inventory lists: {said}"
        for host, said in unknown.items()
    ]
    return names, why[:1]


def _has(of_host: Mapping[str, Any], deployment: manifests.Deployment) -> bool:
    """Return whether a host's plugin is a pod of this DaemonSet. Raises DeclarationError."""
    if plain(of_host.get("device_plugin_mode")) != "daemonset":
        return False
    own = deployed.parse(plain(of_host.get("device_plugin_deployment")) or {})
    return (own.namespace, own.name) == (deployment.namespace, deployment.name)
