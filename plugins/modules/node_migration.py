# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which calls the API from the controller.

DOCUMENTATION = r"""
module: node_migration
short_description: Move a node from the device plugin to DRA or back
description:
  - For playbooks. Compares the declared C(api) of each resource with what the cluster shows of the node. Changes
    nothing.
options:
  state:
    description:
      - V(planned) tells whether the node moves. It fails if the cluster has no DRA, or if pods could not request a
        resource by C(limits) after the move.
      - V(served) waits until the node object and the ResourceSlices show all resources as declared.
    type: str
    choices: [planned, served]
    required: true
  declaration:
    description: The result of M(nodedevices.kubernetes.declaration). The default is the host's declaration.
    type: dict
  pods_have_claims:
    description: For V(planned), whether pods request the devices by ResourceClaims and not by C(limits).
    type: bool
    default: false
  usable:
    description: For V(served), C(usable) of the result of V(planned).
    type: list
    elements: str
    default: []
  command:
    description: For V(served), path of the plugin's command on the node.
    type: path
  timeout:
    description: For V(served), seconds to wait. The kubelet updates the node object every 10 s.
    type: int
    default: 120
extends_documentation_fragment: nodedevices.kubernetes.shared.cluster
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Check whether the node moves to the other API
  nodedevices.kubernetes.node_migration:
    state: planned
    kubeconfig: ~/.kube/config
"""

RETURN = r"""
check_mode:
  description: Whether the task ran in check mode.
  type: bool
  returned: for V(planned)
moves:
  description: Whether the node must be drained, because it moves or because an earlier run left it cordoned.
  type: bool
  returned: for V(planned)
has_slices:
  description: Whether the node serves a resource by DRA, so that pods may have claims.
  type: bool
  returned: for V(planned)
usable:
  description: The resources that move, and have a device that pods can get.
  type: list
  elements: str
  returned: for V(planned)
text:
  description: A sentence with the host and the resources that move.
  type: str
  returned: for V(planned)
"""
