# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which calls the API from the controller.

DOCUMENTATION = r"""
module: daemonset
short_description: Deploy the device plugin as a DaemonSet
description:
  - Brings the device plugin's DaemonSet into the requested O(state) through the Kubernetes API, with server-side apply.
  - In check mode, the API server processes every request as a dry run, and the action does not wait.
options:
  state:
    description:
      - V(configured) writes the node's configuration into its own key of the ConfigMap, unless it is the default. If
        only the Kubernetes API reaches the node (C(node_devices_api_only)), it refuses resources that another device
        plugin serves according to the node object, unless O(takeover) is set. For a profile (C(node_devices_profile)),
        it refuses labels that another DaemonSet may also select.
      - V(deployed) writes a profile's configuration into the ConfigMap, as the default, and removes the keys of nodes
        with the same configuration once no pod of an earlier release is left. Hosts of the inventory that are not in
        the play keep their configuration. It adapts the DaemonSet to the configurations in the cluster, and removes
        every node that O(nodes) does not contain.
      - V(selected) labels the node, so that the pod runs there. V(ready) waits until the pod is ready and runs with the
        declared configuration; for a profile, the pods of a sample of its nodes.
      - V(untainted) is for a node with the plugin as a service. It waits until the node object shows the plugin's
        devices as allocatable, and then removes the taint C(startup_taint) of O(deployment) from the node.
      - V(left) removes nodes from their former DaemonSet, which had another name or namespace. If no node is left, the
        action removes that DaemonSet.
      - V(removed) removes the node, and waits until its pod has ended. If only the Kubernetes API reaches the node, it
        first runs the plugin without resources, so that the plugin removes its CDI specs that no pod needs. The action
        cannot remove these files itself. If the plugin fails, a warning gives the reason. In the pool of a profile, the
        pod stays, with the profile's configuration.
      - V(absent) removes all objects once no node needs them. A namespace stays if it existed before or has other
        users. It refuses to remove a profile while hosts of the inventory still use its DaemonSet.
    type: str
    choices: [configured, deployed, selected, ready, untainted, left, removed, absent]
    required: true
  declaration:
    description: Result of M(nodedevices.kubernetes.declaration), for V(configured) and V(ready).
    type: dict
  pending:
    description:
      - For V(deployed) and V(left), the results of V(configured) of the play's hosts. For V(absent), their results of
        V(removed). The action handles each DaemonSet of these hosts, in each cluster. All hosts of a DaemonSet must use
        identical settings.
    type: list
    elements: dict
    default: []
  nodes:
    description: All nodes of the inventory; V(deployed) and V(absent) remove others. By default, no node is removed.
    type: list
    elements: str
  takeover:
    description: Whether V(configured) may take over resources that another device plugin serves.
    type: bool
    default: false
  started:
    description: Whether V(selected) waits until the pod's process runs, which may wait for another instance to end.
    type: bool
    default: false
  command:
    description:
      - Path of the plugin's command on the node, which V(ready) asks for the pod's active configuration. If left out,
        the action reads the pod's metrics through the API server. V(untainted) requires it.
    type: path
  sample:
    description: The maximum number of a profile's nodes for which V(ready) waits.
    type: int
    default: 3
  timeout:
    description: Seconds to wait for a pod that makes no progress.
    type: int
    default: 120
extends_documentation_fragment:
  - nodedevices.kubernetes.shared.cluster
  - nodedevices.kubernetes.shared.deployment
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
  description: What the action changed.
  type: list
  elements: str
  returned: for states other than V(ready)
node:
  description: The node's name.
  type: str
  returned: for V(configured) and V(removed)
other_daemonsets:
  description: Other DaemonSets of this collection that have a configuration for the node, each with namespace and name.
  type: list
  elements: dict
  returned: for V(configured) and V(removed)
sha256:
  description: Hash of the configuration file that the pod uses.
  type: str
  returned: for V(ready)
pod:
  description: Name of the node's pod; null in check mode and for a profile.
  type: str
  returned: for V(ready)
invocation_id:
  description: The pod's name and the id of the plugin's container, which changes at each start.
  type: str
  returned: for V(ready), except in check mode and for a profile
nodes:
  description: How many nodes the profile has.
  type: int
  returned: for V(ready), for a profile
"""
