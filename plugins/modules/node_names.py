# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs on the controller.

DOCUMENTATION = r"""
module: node_names
short_description: Check that no two hosts of the play are the same node
description:
  - Fails if two hosts of the play have the same node name in the same cluster. The node name is
    C(node_devices_node_name) or the host's own name, and C(node_devices_kubeconfig) determines the cluster. Each of two
    such hosts would undo the other's changes through the API.
  - Also fails if two profiles (C(node_devices_profile)) of one cluster have one DaemonSet, or if a node may have the
    labels of both.
  - The action checks all hosts of the play together, so run it only once. It skips hosts without a kubeconfig, and
    hosts whose variables cannot be evaluated yet. It writes nothing.
options:
  offline:
    description: Contact no API server; only hosts with the same kubeconfig are then known to be in one cluster.
    type: bool
    default: false
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Refuse two hosts that are one node
  nodedevices.kubernetes.node_names:
  run_once: true
"""

RETURN = r"""{}"""
