# SPDX-License-Identifier: Apache-2.0
"""Identifies the cluster of a kubeconfig file."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError, Place


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
