# SPDX-License-Identifier: Apache-2.0
"""Whether a kubeconfig leads to what a run will need, asked before the run writes anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError, Place
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import DeclarationError

from . import daemonset_slot, deployed

_VARIABLE = "node_devices_kubeconfig"


def problems(
    path: str, node: str, must_exist: bool, patches: bool, deployment: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """A sentence that names the variable and the file, where the run could not do with it what it is for.

    node: the node's name in the cluster. must_exist: whether there has to be such a node object; an uninstall goes on
    without. patches: whether the run will change the node's status. deployment: of the DaemonSet, where it is to run.
    """
    try:
        api = Api(kubeconfig.read(path))
        if must_exist:
            api.node(node)
        elif api.get(Place("nodes", node)) is None:
            return
        if patches:
            # The server goes through all of it, the right to do it included, and keeps nothing.
            api.patch_node_status(node, [{"op": "test", "path": "/metadata/name", "value": node}], dry_run=True)
        found = "" if deployment is None else _without_slot(api, node, deployment)
        if found:
            yield found
    except (kubeconfig.KubeconfigError, ApiError) as error:
        said = " ".join(str(error).split())
        where = "" if path in said else f" ({path})"
        yield f"{_VARIABLE}{where}: {said}"


def _without_slot(api: Api, node: str, deployment: Mapping[str, Any]) -> str:
    """A sentence where the DaemonSet's pod has no slot; what hinders the question, whoever deploys says."""
    try:
        return daemonset_slot.refusal(api, node, deployed.parse(deployment))
    except (ApiError, DeclarationError):
        return ""
