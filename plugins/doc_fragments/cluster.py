# SPDX-License-Identifier: Apache-2.0
"""Documentation of the options that modules for the Kubernetes API share."""

from __future__ import annotations


class ModuleDocFragment:
    """The class that Ansible loads."""

    DOCUMENTATION = r"""
options:
  node_name:
    description: The node's name in the cluster. The default is C(node_devices_node_name), or else the host's name.
    type: str
  kubeconfig:
    description:
      - Path of a kubeconfig file on the controller; its current context applies. The default is
        C(node_devices_kubeconfig).
    type: path
"""

    DEPLOYMENT = r"""
options:
  deployment:
    description: Settings of the DaemonSet, with the keys of C(device_plugin_deployment) of role device_plugin.
    type: dict
    default: {}
"""
