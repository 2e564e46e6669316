# SPDX-License-Identifier: Apache-2.0
"""Identifies the cluster that a kubeconfig file leads to."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError, Place


def identity(path: str) -> str:
    """Return a cluster's identity: the uid of its namespace kube-system, or else its address."""
    try:
        access = kubeconfig.read(path)
        namespace = Api(access).get(Place("namespaces", "kube-system"))
        return str(namespace["metadata"]["uid"]) if namespace else f"{access.server} {access.proxy}"
    except ApiError:
        return f"{access.server} {access.proxy}"
    except kubeconfig.KubeconfigError:
        # The check of each host reports what is wrong with the file.
        return path
