# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which calls the API from the controller.

DOCUMENTATION = r"""
module: extended_resources
short_description: Patch static extended resources on a node's status
description:
  - Patches the capacities of a declaration on the status of the host's Kubernetes node by a JSON patch, in one step
    with the annotation C(nodedevices.kubernetes/extended-resources) that remembers what is ours and what was there
    before. Waits until the kubelet has made them allocatable.
  - Takes away what is no longer declared, ours only, and the keys with capacity 0 that the device plugin's former
    resources left on the node object.
  - Refuses a name that a device plugin on the node serves, by the kubelet's checkpoint there.
  - In check mode the API server goes through the whole patch and keeps nothing (dry run).
options:
  state:
    description: V(reported) changes nothing and reads what is there.
    type: str
    choices: [present, absent, reported]
    default: present
  api_only:
    description:
      - Whether nothing but the Kubernetes API reaches the node; default C(node_devices_api_only). The kubelet's entries
        in the node object then tell what device plugins serve.
    type: bool
  timeout:
    description: Seconds that the kubelet may take to follow; it looks every 10 s.
    type: int
    default: 60
extends_documentation_fragment:
  - nodedevices.kubernetes.cluster
  - nodedevices.kubernetes.node.declared
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Read the declaration
  nodedevices.kubernetes.declaration:
  register: declaration

- name: Patch its capacities
  nodedevices.kubernetes.extended_resources:
    declaration: "{{ declaration }}"
    kubeconfig: ~/.kube/config
"""

RETURN = r"""
resources:
  description:
    - A row for each resource that is declared or that we left on the node object, with C(resource), C(declared) (a
      number, V(plugin) or V(-)), C(capacity), C(allocatable) and C(state).
  type: list
  elements: dict
  returned: success
lingering:
  description: Resources that are gone, but that the kubelet still lists.
  type: list
  elements: str
  returned: success
"""
