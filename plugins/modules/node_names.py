# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs on the controller.

DOCUMENTATION = r"""
module: node_names
short_description: See that no two hosts of the play are the same node
description:
  - Fails where two hosts of the play, by C(node_devices_node_name) or their own names, are one node of a cluster
    (C(node_devices_kubeconfig)). What one of them has written through the API the other one would take away.
  - It looks at all hosts of the play at once, so it is run once. Hosts that have no kubeconfig, or whose variables
    cannot be worked out yet, are passed over. It writes nothing.
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Refuse two hosts that are one node
  nodedevices.kubernetes.node_names:
  run_once: true
"""

RETURN = r"""{}"""
