# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which calls the API from the controller.

DOCUMENTATION = r"""
module: node_drain
short_description: Drain a node for a while
description:
  - For playbooks. Cordons a node and evicts its pods, and later lets pods onto it again, as C(kubectl drain) and
    C(kubectl uncordon) do, with the Python standard library alone.
  - A node that we cordoned has an annotation that says since when and by which play. A cordon of somebody else stays.
  - Pods of DaemonSets, static pods and pods that have ended are left alone.
  - In check mode the API server goes through all of it and keeps nothing (dry run); nothing is waited for.
options:
  state:
    description:
      - V(drained) cordons it and evicts its pods through the API's eviction, which honours PodDisruptionBudgets, and
        fails where they have not gone in time. What would be lost is said before the node is cordoned.
      - V(uncordoned) takes back a cordon of ours, of an earlier play too.
    type: str
    choices: [drained, uncordoned]
    required: true
  minutes:
    description: How long pods may take to go.
    type: float
    default: 10
  force:
    description: Whether pods go that nobody makes again, as with kubectl's C(--force).
    type: bool
    default: false
  delete_emptydir_data:
    description: Whether pods go that have data in an emptyDir, as with kubectl's C(--delete-emptydir-data).
    type: bool
    default: false
  pending:
    description: For V(uncordoned) in check mode, whether V(drained) would have cordoned the node.
    type: bool
    default: false
extends_documentation_fragment:
  - nodedevices.kubernetes.cluster
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Let the node's pods go elsewhere
  nodedevices.kubernetes.node_drain:
    state: drained
    kubeconfig: ~/.kube/config
    delete_emptydir_data: true
"""

RETURN = r"""
cordoned:
  description: Whether the cordon is ours; also where pods have not gone in time.
  type: bool
  returned: for V(drained), once the node is cordoned
evicted:
  description: The pods that went, as namespace and name.
  type: list
  elements: str
  returned: for V(drained)
"""
