# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs other modules on the node.

DOCUMENTATION = r"""
module: cdi_specs
short_description: Write a node's CDI specs
description:
  - Writes the CDI specs of the declared devices into C(/etc/cdi), one file for each kind. A device that is no longer
    declared stays until V(pruned). Even then, it stays while a pod holds it or the kubelet still lists it. The action
    never touches specs of other owners.
  - Fails if this node's runtime would refuse a spec, or if another file has a device of the same name.
  - Fails if a CDI name that a container holds would lead to another device, because the container would get that device
    after a restart.
options:
  declaration:
    description: Result of M(nodedevices.kubernetes.declaration); the host's own declaration if left out.
    type: dict
  state:
    description:
      - V(present) writes the declared devices. V(pruned) removes devices that are no longer declared and that no pod
        holds. V(absent) does the same as if no device were declared.
    type: str
    choices: [present, pruned, absent]
    default: present
  pruned:
    description:
      - Result of a task that ran the plugin's command C(cdi prune), for an uninstall. The action reports the devices
        that this command kept with the other kept devices.
    type: dict
  command:
    description: Path of the plugin's command on the node, which lists the pods that hold devices.
    type: path
extends_documentation_fragment:
  - nodedevices.kubernetes.node
  - nodedevices.kubernetes.node.kubelet
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Write CDI specs
  nodedevices.kubernetes.cdi_specs:
"""

RETURN = r"""
kept:
  description:
    - Devices that stay although they are no longer declared, each with the reason, including those of O(pruned).
  type: list
  elements: dict
  returned: success
stays:
  description: Spec files of this collection that are present now, or in check mode would be.
  type: list
  elements: str
  returned: success
dynamic:
  description: CDI names of the devices of O(pruned) that stay.
  type: list
  elements: str
  returned: success
"""
