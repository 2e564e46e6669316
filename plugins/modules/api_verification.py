# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which calls the API from the controller.

DOCUMENTATION = r"""
module: api_verification
short_description: Prove a node's devices through the Kubernetes API alone
description:
  - Holds the node object to the declaration, then makes a pod for each resource that has something free on the node,
    which comes by the scheduler, prints what its container has, and ends. Its log is held to the declaration. There are
    a few pods at a time, below every other pod's priority.
  - Where pods hold every device, the answer is who they are. What is discovered on the node is V(unproven), because the
    API does not say which devices these are, and so is what a pod has no place for. Each of them is a warning.
  - What was proven is remembered in an annotation of the node object, C(nodedevices.kubernetes/proven).
  - The result is the report. It fails where something cannot be asked, not where something is wrong. In check mode it
    does nothing.
options:
  state:
    description: With V(absent), what proofs left in the cluster is taken away, which is their priority class.
    type: str
    choices: [present, absent]
    default: present
  require_proof:
    description: Whether a resource without a proof is a problem.
    type: bool
    default: false
  proofs:
    description: What is proven; with V(unproven) what was not proven yet as it is declared now, by this image and with
      this version of the container runtime.
    type: str
    choices: [all, unproven]
    default: all
  devices:
    description: What a proof asks for; with V(all) every device of a resource, where all are free.
    type: str
    choices: [one, all]
    default: one
  timeout:
    description: Seconds that the node object may take to show what is declared, and again the pods to end.
    type: int
    default: 60
extends_documentation_fragment:
  - nodedevices.kubernetes.cluster
  - nodedevices.kubernetes.cluster.deployment
  - nodedevices.kubernetes.node.declared
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Prove the devices
  nodedevices.kubernetes.api_verification:
    kubeconfig: ~/.kube/config
    declaration: "{{ declaration }}"
"""

RETURN = r"""
runtime:
  description: Name and version of the container runtime.
  type: str
  returned: where it is not skipped
kubelet:
  description: Version of the kubelet.
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
