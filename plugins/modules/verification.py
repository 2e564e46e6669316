# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs the plugin's command on the node.

DOCUMENTATION = r"""
module: verification
short_description: Verify a node from its declaration to a device inside a container
description:
  - Runs the plugin's command C(verify) on the node with the declaration, and records the proofs.
  - With O(kubeconfig), ordinary pods of the cluster prove what no container of the node shows. A few pods run at a
    time, below every other pod's priority. Without O(kubeconfig), the command creates static pods, if the kubelet has a
    directory for them.
  - A resource without a proof is V(unproven), with the reason, and causes a warning.
  - The result is the report. The action fails if a query fails, not if the report has problems. In check mode, the
    action does nothing.
options:
  tool:
    description: Path of the plugin's command on the node.
    type: path
    required: true
  record:
    description: File on the node that records the proofs.
    type: path
    required: true
  proofs:
    description: Whether to prove every resource, or only those without a recorded proof of the current declaration.
    type: str
    choices: [all, unproven]
    default: all
  devices:
    description: How many free devices of a resource its proof requests.
    type: str
    choices: [one, all]
    default: one
  image:
    description: Image of the proof's containers; the runtime's sandbox image if left out.
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
  timeout:
    description: Seconds for the kubelet to list the declared devices, and again for each proof's pod to run.
    type: int
    default: 60
extends_documentation_fragment:
  - nodedevices.kubernetes.cluster
  - nodedevices.kubernetes.cluster.deployment
  - nodedevices.kubernetes.node
  - nodedevices.kubernetes.node.declared
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
  returned: unless the task is skipped
kubelet:
  description: State of the kubelet, V(running), V(not answering) or V(asked too often); V(none) without a kubelet.
  type: str
  returned: unless the task is skipped
resources:
  description: One row for each resource.
  type: list
  elements: dict
  returned: unless the task is skipped
problems:
  description: Problems that the action found.
  type: list
  elements: str
  returned: unless the task is skipped
"""
