# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs another module and commands on the node.

DOCUMENTATION = r"""
module: node_status
short_description: Read how a node is, whatever state it is in
description:
  - Looks at the node once (M(nodedevices.kubernetes.node_preflight)) and asks the plugin and the container runtime that
    run there, three executions in all; with a O(kubeconfig) the API server from the controller. It changes nothing.
  - It never fails for what it finds. A node that cannot be reached, or lacks something, has a result that says so.
options:
  command:
    description: The plugin's command on the node.
    type: path
    required: true
  settings:
    description: The plugin's configuration apart from resources, as for M(nodedevices.kubernetes.declaration).
    type: dict
  cri_socket:
    description: The container runtime's socket, as for M(nodedevices.kubernetes.node_preflight).
    type: path
  mode:
    description: What the plugin should be; in mode V(daemonset) its pod is looked at, too, which needs O(kubeconfig).
    type: str
    choices: [service, daemonset]
    default: service
  api_only:
    description: Whether nothing but the Kubernetes API reaches the node; default C(node_devices_api_only).
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
