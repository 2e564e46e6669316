# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name.

DOCUMENTATION = r"""
module: plugin_report
short_description: Report a node's device plugin, and whether it matches the declaration
description:
  - Queries the running plugin on the node. If the node is reachable only through the Kubernetes API, the action reads
    the plugin's metrics through this API. In mode V(daemonset), the action also reads the node's pod from the cluster.
    It changes nothing, and does not fail because of problems that it finds.
options:
  mode:
    description: How the plugin should run.
    type: str
    choices: [service, daemonset]
    required: true
  instance:
    description: The plugin's running instance, as returned by M(nodedevices.kubernetes.node_preflight).
    type: dict
  command:
    description: Path of the plugin's command on the node. If left out, the action does not query the node.
    type: path
  healthy:
    description:
      - Number of devices that the kubelet lists for each resource. The action compares the node object with these
        numbers.
    type: dict
    default: {}
  timeout:
    description:
      - Seconds to wait until the node object shows these numbers. The kubelet updates the node object every 10 s.
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
  description: V(service), V(pod NAME) or V(-).
  type: str
  returned: always
configuration:
  description: First 12 digits of the hash of the plugin's configuration file, or V(-).
  type: str
  returned: always
state:
  description: V(as declared), or the problem.
  type: str
  returned: always
problems:
  description: All problems, also of the node object, one sentence each.
  type: list
  elements: str
  returned: always
"""
