# SPDX-License-Identifier: Apache-2.0
"""Documentation of the options that modules for the Kubernetes API share."""

from __future__ import annotations


class ModuleDocFragment:
    """The class that Ansible loads."""

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
