# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which calls the API from the controller.

DOCUMENTATION = r"""
module: daemonset
short_description: The device plugin as a DaemonSet
description:
  - Brings the device plugin's DaemonSet into a state through the Kubernetes API, by server-side apply.
  - In check mode the API server goes through all of it and keeps nothing (dry run); nothing is waited for.
options:
  state:
    description:
      - V(configured) puts the node's configuration into the ConfigMap, where it alone owns its key; V(deployed) makes
        the DaemonSet what the configurations in the cluster need, and takes nodes out that O(nodes) lacks; V(selected)
        lets the pod run on the node; V(ready) waits until it is ready and runs with what is declared; V(left) takes
        nodes out of the DaemonSet of another name or namespace where they were before, and that away where no node is
        left.
      - V(removed) takes the node out, and waits until its pod has ended; V(absent) takes away everything once no node
        needs it. A namespace that was there before, or that somebody else uses, stays.
    type: str
    choices: [configured, deployed, selected, ready, left, removed, absent]
    required: true
  declaration:
    description: The result of M(nodedevices.kubernetes.declaration), for V(configured) and V(ready).
    type: dict
  pending:
    description:
      - The results of V(configured) of the play's hosts for V(deployed) and V(left), of V(removed) for V(absent). The
        state is brought about for each DaemonSet that these hosts have, in each cluster; what its hosts differ in is
        refused.
    type: list
    elements: dict
    default: []
  to_come:
    description:
      - For V(deployed) hosts that have a later play of the run. What their pods need is deployed with it, by their
        variables and by what the run has registered of their declaration as C(node_devices_declaration).
    type: list
    elements: str
    default: []
  nodes:
    description:
      - For V(deployed) every node of the inventory; without it no node is taken out.
      - For V(absent) those that this play takes out.
    type: list
    elements: str
  nameless:
    description:
      - For V(deployed) and V(absent) the hosts of the inventory whose node's name cannot be worked out in this play.
        While there are any no node is taken out for its absence, because it may be theirs.
    type: list
    elements: str
    default: []
  known:
    description:
      - For V(absent) every node of the inventory; without it no node beside those of O(pending) is taken out.
    type: list
    elements: str
  api_only:
    description:
      - Whether only the API reaches the node; default C(node_devices_api_only). V(configured) then refuses, unless
        O(takeover), resources that another device plugin serves there, by the node object.
      - V(removed) first lets the plugin run with no resource, so that it takes away its CDI specs that no pod holds,
        which nobody else can. Where it does not come to that, a warning says why.
    type: bool
  takeover:
    description: Whether V(configured) may take over such resources.
    type: bool
    default: false
  started:
    description: Whether V(selected) waits until the pod's process runs, be it that it waits for another instance to
      end.
    type: bool
    default: false
  command:
    description:
      - The plugin's command on the node, which V(ready) asks what the pod runs with. Without it the pod's metrics are
        read through the API server.
    type: path
  timeout:
    description: Seconds that a pod may take without any progress.
    type: int
    default: 120
extends_documentation_fragment:
  - nodedevices.kubernetes.cluster
  - nodedevices.kubernetes.cluster.deployment
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Read the declaration
  nodedevices.kubernetes.declaration:
  register: declaration

- name: Write the node's ConfigMap
  nodedevices.kubernetes.daemonset:
    state: configured
    kubeconfig: ~/.kube/config
    declaration: "{{ declaration }}"
"""

RETURN = r"""
what:
  description: What was changed.
  type: list
  elements: str
  returned: for states other than V(ready)
host:
  description: The host's name in the inventory.
  type: str
  returned: for V(configured) and V(removed)
node:
  description: The node's name.
  type: str
  returned: for V(configured) and V(removed)
kubeconfig:
  description: As it was given.
  type: str
  returned: for V(configured) and V(removed)
deployment:
  description: As it was given.
  type: dict
  returned: for V(configured) and V(removed)
other_daemonsets:
  description: Our other DaemonSets that have a configuration of the node, each with its namespace and name.
  type: list
  elements: dict
  returned: for V(configured) and V(removed)
text:
  description: The node's configuration file.
  type: str
  returned: for V(configured)
sha256:
  description: The hash of the configuration file that the pod runs with.
  type: str
  returned: for V(ready)
pod:
  description: The node's pod; none in check mode.
  type: str
  returned: for V(ready)
"""
