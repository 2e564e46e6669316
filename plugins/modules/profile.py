# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which calls the API from the controller.

DOCUMENTATION = r"""
module: profile
short_description: Give devices to nodes that nobody named
description:
  - Brings a profile into the requested O(state) through the Kubernetes API. A profile is a host of the inventory with
    C(node_devices_profile). Its declaration is the default of a DaemonSet, for every node that the DaemonSet selects
    and that has no configuration of its own.
  - In check mode, the API server processes every request as a dry run, and the action does not wait.
options:
  state:
    description:
      - V(deployed) writes the default configuration into the ConfigMap, applies the DaemonSet, and waits until the pods
        of a sample of the nodes run with the configuration. It refuses labels that another DaemonSet may also select.
      - V(verified) verifies a sample of the nodes with pods that get devices.
      - V(reported) judges all nodes by their node objects and pods. It also asks the plugins of a sample of the nodes,
        and of the first 16 nodes that differ.
      - V(absent) removes the default configuration and the DaemonSet. It refuses this if hosts of the inventory still
        use the DaemonSet.
    type: str
    choices: [deployed, verified, reported, absent]
    required: true
  sample:
    description:
      - The maximum number of nodes in the sample. V(verified) takes nodes without a recorded proof first. V(deployed),
        and V(verified) with O(proofs=unproven), take nodes with a proof first.
    type: int
    default: 3
  proofs:
    description: Whether V(verified) proves all resources, or only those without a recorded proof (V(unproven)).
    type: str
    choices: [all, unproven]
    default: all
  timeout:
    description: Seconds to wait for a pod that makes no progress.
    type: int
    default: 120
  kubeconfig:
    description:
      - Path of a kubeconfig file on the controller; its current context applies. The default is
        C(node_devices_kubeconfig).
    type: path
extends_documentation_fragment:
  - nodedevices.kubernetes.shared.declared
  - nodedevices.kubernetes.shared.deployment
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Give the pool's nodes their devices
  nodedevices.kubernetes.profile:
    state: deployed
    kubeconfig: ~/.kube/config
"""

RETURN = r"""
what:
  description: What the action changed.
  type: list
  elements: str
  returned: for V(deployed) and V(absent)
nodes:
  description: How many nodes the profile has.
  type: int
  returned: for V(deployed)
resources:
  description: The rows of the verified nodes, as of M(nodedevices.kubernetes.verification), each with its node.
  type: list
  elements: dict
  returned: for V(verified)
problems:
  description: The problems of the verified nodes, each with its node.
  type: list
  elements: str
  returned: for V(verified)
statuses:
  description: The entries of the report of C(status.yml); the first one is the profile's.
  type: list
  elements: dict
  returned: for V(reported)
"""
