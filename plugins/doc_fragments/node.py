# SPDX-License-Identifier: Apache-2.0
"""Options of the modules that go on from what is known of a node, for their documentation."""

from __future__ import annotations


class ModuleDocFragment:
    """What Ansible looks for."""

    DOCUMENTATION = r"""
options:
  node:
    description: What M(nodedevices.kubernetes.node_preflight) returned.
    type: dict
    required: true
"""

    DECLARED = r"""
options:
  declaration:
    description: The result of M(nodedevices.kubernetes.declaration).
    type: dict
    required: true
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
