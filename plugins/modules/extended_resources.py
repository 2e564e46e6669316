# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which calls the API from the controller.

DOCUMENTATION = r"""
module: extended_resources
short_description: Patch static extended resources into a node's status
description:
  - Patches the declared capacities into the status of the host's Kubernetes node, with a JSON patch. The same patch
    sets the annotation C(nodedevices.kubernetes/extended-resources), which records the patched resources and their
    earlier values. The action waits until the kubelet has made the capacities allocatable.
  - Removes the module's own capacities that are no longer declared. Also removes keys with capacity 0 that former
    resources of the device plugin left on the node object.
  - Refuses a name that a device plugin on the node serves, according to the kubelet's checkpoint. If only the
    Kubernetes API reaches the node (C(node_devices_api_only)), the node object shows these names.
  - In check mode, the API server processes the whole patch as a dry run.
options:
  state:
    description: V(present) patches the capacities, V(absent) removes them, and V(reported) only reads them.
    type: str
    choices: [present, absent, reported]
    default: present
  timeout:
    description: Seconds to wait until the kubelet updates the node object. The kubelet does this every 10 s.
    type: int
    default: 60
extends_documentation_fragment:
  - nodedevices.kubernetes.shared.cluster
  - nodedevices.kubernetes.shared.declared
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Patch the declared capacities
  nodedevices.kubernetes.extended_resources:
    kubeconfig: ~/.kube/config
"""

RETURN = r"""
resources:
  description:
    - One row for each resource that is declared or remains on the node object. The keys of a row are C(resource),
      C(declared) (a number, V(plugin) or V(-)), C(capacity), C(allocatable) and C(state).
  type: list
  elements: dict
  returned: success
problems:
  description: One message for each declared capacity that is not allocatable as declared.
  type: list
  elements: str
  returned: with O(state=reported)
lingering:
  description: Removed resources that the kubelet still lists.
  type: list
  elements: str
  returned: success
"""
