# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name.

DOCUMENTATION = r"""
module: plugin_report
short_description: What the device plugin of a node is, and whether it is as declared
description:
  - Asks the running plugin on the node, or its metrics through the Kubernetes API where only that reaches the node; in
    mode daemonset also the cluster for the node's pod. Changes nothing, and does not fail for what it finds.
options:
  mode:
    description: What it should be.
    type: str
    choices: [service, daemonset]
    required: true
  instance:
    description: What M(nodedevices.kubernetes.node_preflight) found of it on the node.
    type: dict
  command:
    description: The plugin's command on the node. Without it nothing is asked there.
    type: path
  healthy:
    description: Resource to the number of devices that the kubelet lists, which the node object is held to.
    type: dict
    default: {}
  timeout:
    description: Seconds that the node object may take to show them; the kubelet looks every 10 s.
    type: int
    default: 30
extends_documentation_fragment:
  - nodedevices.kubernetes.cluster
  - nodedevices.kubernetes.cluster.deployment
  - nodedevices.kubernetes.node.declared
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Read the plugin's state
  nodedevices.kubernetes.plugin_report:
    mode: daemonset
    kubeconfig: ~/.kube/config
    declaration: "{{ declaration }}"
"""

RETURN = r"""
runs_as:
  description: V(service), a pod's name, or V(-).
  type: str
  returned: always
configuration:
  description: The first digits of the hash of its configuration file, or V(-).
  type: str
  returned: always
state:
  description: V(as declared), or what is wrong.
  type: str
  returned: always
problems:
  description: Everything that is wrong, the node object's part too, a sentence each.
  type: list
  elements: str
  returned: always
"""
