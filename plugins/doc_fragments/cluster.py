# SPDX-License-Identifier: Apache-2.0
"""Documentation of the options that modules for the Kubernetes API share."""

from __future__ import annotations


class ModuleDocFragment:
    """The class that Ansible loads."""

    DOCUMENTATION = r"""
options:
  node_name:
    description: The node's name in the cluster; C(node_devices_node_name) or else the host's name if left out.
    type: str
  kubeconfig:
    description:
      - A kubeconfig file on the controller, with its current context; C(node_devices_kubeconfig) if left out.
    type: path
"""

    DEPLOYMENT = r"""
options:
  deployment:
    description: Settings of the DaemonSet, with the keys of C(device_plugin_deployment) of role device_plugin.
    type: dict
    default: {}
"""
