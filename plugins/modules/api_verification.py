# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which calls the API from the controller.

DOCUMENTATION = r"""
module: api_verification
short_description: Prove a node's devices through the Kubernetes API alone
description:
  - Compares the node object with the declaration. Then, for each resource with a free device, a pod runs on the node
    and logs the devices of its container. The scheduler places these pods. The action compares each pod's log with the
    declaration. Only a few pods run at a time, with a lower priority than all other pods.
  - If pods hold every device of a resource, the resource's state is V(in use), with the names of the pods. A resource
    with discovered devices is V(unproven), because the API does not show these devices. A resource is also V(unproven)
    if the node has no room for its pod. The action prints a warning for each V(unproven) resource.
  - An annotation of the node object, C(nodedevices.kubernetes/proven), records the proofs.
  - The result is the report. The action fails if a query fails, but not if the report contains problems. In check mode,
    the action does nothing.
options:
  state:
    description:
      - V(absent) removes the priority class of the proofs' pods, the only object that proofs leave in the cluster.
    type: str
    choices: [present, absent]
    default: present
  require_proof:
    description: Whether a resource without a proof is a problem.
    type: bool
    default: false
  proofs:
    description:
      - Whether to prove V(all) resources, or only resources without a valid recorded proof. A recorded proof is valid
        while declaration, image and version of the container runtime stay the same.
    type: str
    choices: [all, unproven]
    default: all
  devices:
    description:
      - How many devices a proof requests. With V(all), a proof requests every device of a resource if all of them are
        free.
    type: str
    choices: [one, all]
    default: one
  timeout:
    description:
      - Timeout in seconds. It applies twice, until the node object shows the declared devices and until the pods end.
    type: int
    default: 60
  invocation:
    description:
      - The C(invocation_id) that M(nodedevices.kubernetes.daemonset) returned. If the plugin has ended since, that is a
        problem.
    type: str
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
  returned: unless the task is skipped
kubelet:
  description: Version of the kubelet.
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
