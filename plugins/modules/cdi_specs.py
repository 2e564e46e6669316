# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs other modules on the node.

DOCUMENTATION = r"""
module: cdi_specs
short_description: Write a node's CDI specs
description:
  - Writes the specs of what is declared into C(/etc/cdi), one file for each kind. Devices of ours that are no longer
    declared stay until V(pruned), and then until no pod holds them and the kubelet offers them no more. Specs of others
    are never touched.
  - Fails where this node's runtime would refuse a spec, or another file has a device of the same name.
  - Fails where a name that a container holds would become another device. The container would get that one when it
    restarts.
options:
  declaration:
    description: What M(nodedevices.kubernetes.declaration) returned; the host's own if left out.
    type: dict
  state:
    description:
      - V(present) writes what is declared. V(pruned) removes devices that are no longer declared and that nobody holds;
        V(absent) does so with nothing declared.
    type: str
    choices: [present, pruned, absent]
    default: present
  pruned:
    description:
      - Result of a task that ran the plugin's command C(cdi prune), if all is taken away. What that had to keep is
        named with the other devices.
    type: dict
  command:
    description: The plugin's command on the node, which says who holds what.
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
  description: Devices that are no longer declared and stay, each with the reason. Those of O(pruned), too.
  type: list
  elements: dict
  returned: success
stays:
  description: The spec files of ours that are there now, or in check mode would be.
  type: list
  elements: str
  returned: success
dynamic:
  description: The devices of O(pruned) that stay, by their CDI names.
  type: list
  elements: str
  returned: success
"""
