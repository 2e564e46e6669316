# SPDX-License-Identifier: Apache-2.0
"""Documentation of the options that several modules have."""

from __future__ import annotations


class ModuleDocFragment:
    """The class that Ansible loads."""

    CLUSTER = r"""
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

    DECLARED = r"""
options:
  declaration:
    description: Result of M(nodedevices.kubernetes.declaration). The default is the host's own declaration.
    type: dict
"""

    CODE = r"""
options:
  code:
    description: The archive of the plugin's code; set by the action.
    type: dict
    suboptions:
      sha256:
        description: SHA-256 hash of the archive.
        type: str
        required: true
      path:
        description: Path of a temporary copy on the node.
        type: path
"""

    HOLDERS = r"""
options:
  command:
    description: Path of the plugin's command on the node, which lists the pods that hold devices.
    type: path
  kubelet_root:
    description: The kubelet's root directory, if it differs from the default.
    type: path
  device_plugin_dir:
    description: The kubelet's device plugin directory, if it differs from the default.
    type: path
  cdi_dir:
    description: The plugin's directory of CDI specs, if it differs from the default.
    type: path
"""
