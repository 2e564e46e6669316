# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs the plugin's command on the node, or calls the API.

DOCUMENTATION = r"""
module: verification
short_description: Verify a node from its declaration to a device inside a container
description:
  - Runs the plugin's command C(verify) on the node with the declaration, and records the proofs.
  - The command first inspects the node's running containers. For the other resources, with O(kubeconfig), ordinary pods
    request devices. Only a few such pods run at a time, with a lower priority than all other pods. Without
    O(kubeconfig), the command creates static pods, if the kubelet has a directory for them.
  - If the node is reachable only through the Kubernetes API (C(node_devices_api_only)), the action compares the node
    object with the declaration. Then a pod for each resource with a free device logs the devices of its container. An
    annotation of the node object, C(nodedevices.kubernetes/proven), records the proofs. A resource with discovered
    devices is then V(unproven), because the API does not show these devices.
  - If pods hold every device of a resource and their containers cannot be inspected, the resource is V(in use).
  - A resource without a proof is V(unproven). The action prints a warning with the reason.
  - The result is the report. The action fails if a query fails, but not if the report contains problems. In check mode,
    the action does nothing.
options:
  state:
    description:
      - V(absent) removes the priority class of the proofs' pods, the only object that proofs leave in the cluster.
    type: str
    choices: [present, absent]
    default: present
  tool:
    description: Path of the plugin's command on the node. Required, unless only the Kubernetes API reaches the node.
    type: path
  record:
    description: File on the node that records the proofs. Required, unless only the Kubernetes API reaches the node.
    type: path
  proofs:
    description:
      - Whether to prove V(all) resources, or only resources without a valid recorded proof. A recorded proof is valid
        while declaration, plugin and version of the container runtime stay the same.
    type: str
    choices: [all, unproven]
    default: all
  devices:
    description: How many free devices a resource's proof requests.
    type: str
    choices: [one, all]
    default: one
  image:
    description: Image of the proof's containers. The default is the runtime's sandbox image.
    type: str
  mode:
    description: How the plugin runs. After a change of the mode, every resource needs a new proof.
    type: str
    choices: [service, daemonset]
    default: service
  require_proof:
    description: Whether a resource without a proof is a problem.
    type: bool
    default: false
  sample:
    description:
      - The maximum number of nodes to verify, if the host is a profile (C(node_devices_profile)). Nodes without a
        recorded proof come first; with O(proofs=unproven), nodes with a recorded proof.
    type: int
    default: 3
  timeout:
    description: Seconds until the kubelet or node object lists the devices, and again for each proof's pod.
    type: int
    default: 60
  invocation:
    description:
      - The C(invocation_id) that M(nodedevices.kubernetes.service) or M(nodedevices.kubernetes.daemonset) returned. If
        the plugin has ended since, that is a problem.
    type: str
extends_documentation_fragment:
  - nodedevices.kubernetes.shared.cluster
  - nodedevices.kubernetes.shared.deployment
  - nodedevices.kubernetes.shared.declared
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Verify the node
  nodedevices.kubernetes.verification:
    tool: /usr/local/bin/node-device-plugin
    record: /var/lib/node-devices/proven.json
"""

RETURN = r"""
runtime:
  description: Name and version of the container runtime.
  type: str
  returned: unless the task is skipped or the host is a profile
kubelet:
  description:
    - State of the kubelet, V(running), V(not answering) or V(rate limited); V(none) without a kubelet. If only the
      Kubernetes API reaches the node, this is the kubelet's version.
  type: str
  returned: unless the task is skipped or the host is a profile
resources:
  description: One row for each resource, and for each node of a profile's sample.
  type: list
  elements: dict
  returned: unless the task is skipped
problems:
  description: Problems that the action found.
  type: list
  elements: str
  returned: unless the task is skipped
"""
