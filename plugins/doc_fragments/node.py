# SPDX-License-Identifier: Apache-2.0
"""Documentation of the options that modules with a node's facts share."""

from __future__ import annotations


class ModuleDocFragment:
    """The class that Ansible loads."""

    DOCUMENTATION = r"""
options:
  node:
    description:
      - What M(nodedevices.kubernetes.node_preflight) returned. If left out, what the play has registered of it as
        C(node_devices_node), and where the play has not looked, the action looks.
    type: dict
"""

    DECLARED = r"""
options:
  declaration:
    description: What M(nodedevices.kubernetes.declaration) returned; the host's own if left out.
    type: dict
"""

    KUBELET = r"""
options:
  kubelet_root:
    description: The kubelet's root directory, if it is not the default.
    type: path
  device_plugin_dir:
    description: The kubelet's device plugin directory, if it is not the default.
    type: path
"""
