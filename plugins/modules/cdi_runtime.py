# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs other modules on the node.

DOCUMENTATION = r"""
module: cdi_runtime
short_description: Make CDI effective in a node's container runtime
description:
  - Plans the least change of the runtime's configuration on the controller, lets the node's own runtime check it, and
    compares what it makes of the old and the new text. Only if nothing but CDI's two keys differs is it written, the
    runtime restarted and asked; otherwise the old configuration is put back and runs.
  - Where CDI is effective already, the runtime is never touched.
options:
  state:
    description:
      - V(absent) gives the two keys back what they were. While a spec of ours is on the node, which a pod may need when
        its container restarts, CDI stays on.
    type: str
    choices: [present, absent]
    default: present
  declaration:
    description: >-
      What M(nodedevices.kubernetes.declaration) returned; the host's own if left out. Where no device is given by CDI,
      nothing is done.
    type: dict
  command:
    description: The plugin's command on the node, which asks the running runtime.
    type: path
    required: true
  max_parallel_restarts:
    description: How many nodes of a run may restart their runtime at the same time; the others wait.
    type: int
    default: 1
  specs:
    description:
      - What M(nodedevices.kubernetes.cdi_specs) returned, if it ran before with nothing declared. It says who holds the
        devices of the specs that stayed, and in check mode which specs would stay.
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
  description: Whether the runtime was restarted, or in check mode would be.
  type: bool
  returned: when something changes
answers:
  description: Whether the container runtime answers after a change that did not come to its end.
  type: bool
  returned: when such a change failed
kept:
  description: Why CDI stays on, a sentence for each device or spec.
  type: list
  elements: str
  returned: when absent, and it stays on
"""
