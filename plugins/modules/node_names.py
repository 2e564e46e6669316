# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs on the controller.

DOCUMENTATION = r"""
module: node_names
short_description: Check that no two hosts of the play are the same node
description:
  - Fails if two hosts of the play are one node of a cluster, by C(node_devices_node_name) or their own names. The
    cluster is that of C(node_devices_kubeconfig). Each of the two hosts would undo what the other one wrote through the
    API.
  - The action checks all hosts of the play at once, so run it once. It skips hosts without a kubeconfig, and hosts
    whose variables cannot be evaluated yet. It writes nothing.
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Refuse two hosts that are one node
  nodedevices.kubernetes.node_names:
  run_once: true
"""

RETURN = r"""{}"""
