# SPDX-License-Identifier: Apache-2.0
"""Which kubeconfig files lead to one cluster."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError, Place


def identity(path: str) -> str:
    """What the kubeconfigs of one cluster have in common: its own name for itself, else where it is."""
    try:
        access = kubeconfig.read(path)
        namespace = Api(access).get(Place("namespaces", "kube-system"))
        return str(namespace["metadata"]["uid"]) if namespace else f"{access.server} {access.proxy}"
    except ApiError:
        return f"{access.server} {access.proxy}"
    except kubeconfig.KubeconfigError:
        # What is wrong with it is said of its hosts.
        return path
