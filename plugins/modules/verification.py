# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs the plugin's command on the node.

DOCUMENTATION = r"""
module: verification
short_description: Verify a node from its declaration to a device inside a container
description:
  - Runs the plugin's command C(verify) on the node with what is declared, and remembers what it proved.
  - With O(kubeconfig), what no container of the node shows is proven by ordinary pods of the cluster, a few at a time
    and below every other pod's priority. Without it the command makes static pods, where the kubelet has a directory
    for them.
  - What has no proof is V(unproven), with the reason, and a warning.
  - The result is the report. It fails where something cannot be asked, not where something is wrong. In check mode it
    does nothing.
options:
  tool:
    description: The plugin's command on the node.
    type: path
    required: true
  record:
    description: The file on the node that what was proven is remembered in.
    type: path
    required: true
  proofs:
    description: Prove every resource, or those only whose proof is not on record for what is declared now.
    type: str
    choices: [all, unproven]
    default: all
  devices:
    description: Free devices of a resource that its proof asks for.
    type: str
    choices: [one, all]
    default: one
  image:
    description: Image for the proof's containers; the runtime's sandbox image if left out.
    type: str
  mode:
    description: What serves the devices; what was proven of another mode is proven again.
    type: str
    choices: [service, daemonset]
    default: service
  require_proof:
    description: Whether a resource without a proof is a problem.
    type: bool
    default: false
  timeout:
    description: Seconds that a pod of a proof may take to run.
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
  returned: where it is not skipped
kubelet:
  description: Whether it answers, V(running), V(not answering) or V(asked too often); V(none) where there is none.
  type: str
  returned: where it is not skipped
resources:
  description: A row for each resource.
  type: list
  elements: dict
  returned: where it is not skipped
problems:
  description: What is wrong.
  type: list
  elements: str
  returned: where it is not skipped
"""
