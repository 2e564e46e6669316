# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs other modules on the node.

DOCUMENTATION = r"""
module: cdi_runtime
short_description: Make CDI effective in a node's container runtime
description:
  - Plans the smallest change to the runtime's configuration on the controller. The node's own runtime parses the old
    and the new text, and the action compares the results. If only CDI's two keys differ, the action writes the file,
    restarts the runtime and queries it. If one of these steps fails, the action restores the old configuration and
    restarts the runtime.
  - If CDI is already effective, the action never touches the runtime.
options:
  state:
    description:
      - V(absent) restores the earlier values of the two keys. CDI stays on while a CDI spec of this collection stays on
        the node, or while a container holds a device by any CDI name, because the container needs CDI at a restart.
        CDI also stays on if the kubelet's checkpoint or the container runtime does not tell who holds such a device.
    type: str
    choices: [present, absent]
    default: present
  declaration:
    description:
      - Result of M(nodedevices.kubernetes.declaration). The default is the host's own declaration. If no device uses
        CDI, the action does nothing.
    type: dict
  command:
    description: Path of the plugin's command on the node. The action uses this command to query the running runtime.
    type: path
    required: true
  max_parallel_restarts:
    description: How many nodes of a run may restart their runtime at the same time; the others wait.
    type: int
    default: 1
  specs:
    description:
      - Result of M(nodedevices.kubernetes.cdi_specs), if that module removed its specs before. This result contains the
        pods that hold the remaining devices and, in check mode, the specs that would stay.
    type: dict
extends_documentation_fragment:
  - nodedevices.kubernetes.node
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Turn CDI on
  nodedevices.kubernetes.cdi_runtime:
    command: /usr/local/bin/node-device-plugin
"""

RETURN = r"""
restarted:
  description: Whether the action restarted the runtime, or would restart it (check mode).
  type: bool
  returned: if something changes
answers:
  description: Whether the container runtime answers after a failed change.
  type: bool
  returned: if a change failed
kept:
  description: Why CDI stays on, one text for each device, spec or container.
  type: list
  elements: str
  returned: for V(absent), if CDI stays on
"""
