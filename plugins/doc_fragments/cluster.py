# SPDX-License-Identifier: Apache-2.0
"""Options of the modules that speak to the Kubernetes API, for their documentation."""

from __future__ import annotations


class ModuleDocFragment:
    """What Ansible looks for."""

    DOCUMENTATION = r"""
options:
  node_name:
    description: The node's name in the cluster, where it is not the inventory's.
    type: str
"""

    KUBECONFIG = r"""
options:
  kubeconfig:
    description: A kubeconfig file on the controller; its current context is used.
    type: path
    required: true
"""

    DEPLOYMENT = r"""
options:
  deployment:
    description: Image, namespace and so on, as role device_plugin describes C(device_plugin_deployment).
    type: dict
    default: {}
"""
