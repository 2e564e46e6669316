# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which calls the API from the controller.

DOCUMENTATION = r"""
module: node_drain
short_description: Drain a node and uncordon it later
description:
  - For playbooks. Cordons a node and evicts its pods, and later uncordons the node, like C(kubectl drain) and C(kubectl
    uncordon). The module needs only the Python standard library.
  - An annotation on the node records the time and the play of the cordon. The module does not remove cordons of other
    users.
  - The module does not evict pods of DaemonSets, static pods or ended pods.
  - In check mode, the API server processes every request as a dry run, and the action does not wait.
options:
  state:
    description:
      - V(drained) cordons the node and evicts its pods through the eviction API, which honours PodDisruptionBudgets.
        The module fails if the pods do not end in time. If pods or data would be lost, the module fails before it
        cordons the node.
      - V(uncordoned) removes the module's own cordon, even that of an earlier play.
    type: str
    choices: [drained, uncordoned]
    required: true
  minutes:
    description: Minutes to wait for the pods to end.
    type: float
    default: 10
  force:
    description: Whether to evict pods that no controller will recreate, like kubectl's C(--force).
    type: bool
    default: false
  delete_emptydir_data:
    description: Whether to evict pods with data in an emptyDir, like kubectl's C(--delete-emptydir-data).
    type: bool
    default: false
  pending:
    description: For V(uncordoned) in check mode, whether V(drained) would have cordoned the node.
    type: bool
    default: false
extends_documentation_fragment: nodedevices.kubernetes.shared.cluster
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
  description: Whether the cordon is the module's own. Also returned if the pods do not end in time.
  type: bool
  returned: for V(drained), once the node is cordoned
evicted:
  description: Namespace and name of each evicted pod.
  type: list
  elements: str
  returned: for V(drained)
"""
