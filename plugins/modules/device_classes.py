# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which calls the API from the controller.

DOCUMENTATION = r"""
module: device_classes
short_description: Keep the DeviceClasses of resources that pods get by ResourceClaims
description:
  - For resources with C(api=dra). Each resource has one DeviceClass in its cluster, which selects the resource's
    devices of all nodes. An annotation of the DeviceClass records the nodes that use it, and the DaemonSets of
    profiles.
  - In check mode, the API server processes every request as a dry run.
options:
  state:
    description:
      - V(present) creates the DeviceClasses that the hosts of the batch declare. It deletes DeviceClasses of this
        collection that no node uses any more. A host that skips role C(device_plugin) keeps its classes. V(absent) does
        the same as if no host of the batch declared a resource. Run both once for all hosts of the batch.
      - V(unclaimed) changes nothing. It fails if a ResourceClaim has devices of the host's node, and names the claim.
        The plugin's records on the node show the claims that are prepared. The cluster shows other claims to which
        devices are allocated; if the user may not list claims, the task prints a warning instead.
        If only the API reaches the node, and for a profile, each claim counts that has such a device and a pod.
    type: str
    choices: [present, absent, unclaimed]
    required: true
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Keep the DeviceClasses of all hosts
  nodedevices.kubernetes.device_classes:
    state: present
  run_once: true
"""

RETURN = r"""
what:
  description: The changed DeviceClasses.
  type: list
  elements: str
  returned: with O(state=present) and O(state=absent)
"""
