# SPDX-License-Identifier: Apache-2.0
"""Options of the modules that speak to the Kubernetes API, for their documentation."""

from __future__ import annotations


class ModuleDocFragment:
    """What Ansible looks for."""

    DOCUMENTATION = r"""
options:
  node_name:
    description: The node's name in the cluster; default C(node_devices_node_name), else the host's name.
    type: str
  kubeconfig:
    description: A kubeconfig file on the controller, whose current context is used; default C(node_devices_kubeconfig).
    type: path
"""

    DEPLOYMENT = r"""
options:
  deployment:
    description: Image, namespace and so on, as role device_plugin describes C(device_plugin_deployment).
    type: dict
    default: {}
"""
