# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs another module and commands on the node.

DOCUMENTATION = r"""
module: node_status
short_description: Read the status of a node, whatever its state
description:
  - Runs M(nodedevices.kubernetes.node_preflight) on the node, and queries the plugin and the container runtime there,
    in three executions. With O(kubeconfig), the action also queries the API server from the controller. It changes
    nothing.
  - The action never fails because of what it finds. If a node is unreachable or a requirement is unmet, the result says
    so.
options:
  command:
    description: Path of the plugin's command on the node.
    type: path
    required: true
  settings:
    description: The plugin's configuration apart from resources, as for M(nodedevices.kubernetes.declaration).
    type: dict
  cri_socket:
    description: The container runtime's socket, as for M(nodedevices.kubernetes.node_preflight).
    type: path
  mode:
    description:
      - How the plugin should run. In mode V(daemonset), the action also reads the plugin's pod, which needs
        O(kubeconfig).
    type: str
    choices: [service, daemonset]
    default: service
  api_only:
    description: Whether only the Kubernetes API reaches the node; C(node_devices_api_only) if left out.
    type: bool
extends_documentation_fragment:
  - nodedevices.kubernetes.cluster
  - nodedevices.kubernetes.cluster.deployment
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Read the node's status
  nodedevices.kubernetes.node_status:
    command: /usr/local/bin/node-device-plugin
  register: node_devices_status
"""

RETURN = r"""
status:
  description: The node's entry, as docs/status.md describes it.
  type: dict
  returned: always
"""
