# SPDX-License-Identifier: Apache-2.0
"""Finds the ResourceClaims that only the plugin of a node can release, if only the API reaches the node."""

from __future__ import annotations

from ....plugin.node_device_plugin.cluster import claims, manifests
from ....plugin.node_device_plugin.declaration import Configuration
from . import profile
from .daemonset import DaemonSet
from .objects import DeploymentError


def held(cluster: DaemonSet, node: str) -> list[str]:
    """Return the claims with devices of a node that pods use. node: empty for all nodes of the profile.

    Raises ApiError, and DeclarationError if a configuration in the cluster is invalid.
    """
    data = cluster.data()
    text = data.get(node, data.get(manifests.DEFAULT))
    return _held(cluster, node, manifests.read_configuration_text(text)) if text else []


def refuse_lost(cluster: DaemonSet, node: str, after: Configuration) -> None:
    """Raise DeploymentError if a node's plugin could not release claims with another configuration.

    Also raises what ``held`` raises. On a node that Ansible reaches, the preflight checks this. node: as for ``held``.
    """
    data = cluster.data()
    text = data.get(node, data.get(manifests.DEFAULT))
    before = manifests.read_configuration_text(text) if text else after
    if after.uses_dra and (before.dra.name, before.dynamic_cdi_dir) == (after.dra.name, after.dynamic_cdi_dir):
        return
    lost = _held(cluster, node, before)
    if lost:
        raise DeploymentError(
            f"pods have devices by the claims {', '.join(lost)}, and the plugin could not release these claims without "
            "a resource with api: dra, or with another dra.driver or dynamic_cdi_dir: end these pods first (kubectl "
            "drain), or undo the change"
        )


def _held(cluster: DaemonSet, node: str, configuration: Configuration) -> list[str]:
    if not configuration.uses_dra:
        return []
    nodes = {node} if node else {each["metadata"]["name"] for each in profile.nodes(cluster)}
    of_driver = (each for each in claims.allocated(cluster.api) if each.driver == configuration.dra.name)
    return sorted({each.claim for each in of_driver if each.pods and each.node in nodes})
