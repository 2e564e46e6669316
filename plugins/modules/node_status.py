# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs another module and commands on the node.

DOCUMENTATION = r"""
module: node_status
short_description: Read the status of a node in any state
description:
  - Runs M(nodedevices.kubernetes.node_preflight) on the node, and queries the plugin and the container runtime there,
    in three executions. With O(kubeconfig), the action also queries the API server from the controller. It changes
    nothing.
  - The action does not fail because of problems on the node. If a node is unreachable or does not meet a requirement,
    the result shows this.
options:
  command:
    description: Path of the plugin's command on the node.
    type: path
    required: true
  cri_socket:
    description: The container runtime's socket. The default is C(node_devices_cri_socket).
    type: path
  mode:
    description:
      - How the plugin should run. In mode V(daemonset), the action also reads the plugin's pod, which needs
        O(kubeconfig). The default is C(device_plugin_mode), or else V(service).
    type: str
    choices: [service, daemonset]
  healthy:
    description: Number of devices that the kubelet lists for each resource, which the node object should have.
    type: dict
    default: {}
  timeout:
    description: Seconds to wait for these numbers. The kubelet updates the node object every 10 s.
    type: int
    default: 30
  sample:
    description: For a profile, how many nodes as declared to ask, in addition to the first 16 nodes that differ.
    type: int
    default: 3
extends_documentation_fragment:
  - nodedevices.kubernetes.shared.cluster
  - nodedevices.kubernetes.shared.deployment
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
  returned: unless the host is a profile
statuses:
  description:
    - The entries of a profile's nodes, first of those that are as declared. The last are of nodes whose label names no
      DaemonSet.
  type: list
  elements: dict
  returned: if the host is a profile
"""
