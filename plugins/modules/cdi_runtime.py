#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: cdi_runtime
short_description: Make CDI effective in a node's container runtime
description:
  - Plans the smallest change to the runtime's configuration, on the node. The node's own runtime parses the old and the
    new text, and the module compares the results. If only CDI's two keys differ, the module writes the file, restarts
    the runtime and queries it. If one of these steps fails, the module restores the old configuration and restarts the
    runtime. Of the runtime's configuration, only the lines of ours and a value that prevents CDI leave the node.
  - If CDI is already effective, the module never touches the runtime.
  - The change is a transaction with a journal in C(/var/lib/node-devices). systemd runs the transaction independently
    of this module, so a lost connection does not stop it. If the transaction's process is killed, systemd undoes the
    change at once. After a power cut, the change is undone by the next boot before the runtime starts, or by
    V(recovered).
  - The action of the same name restarts at most O(max_parallel_restarts) runtimes at the same time.
options:
  state:
    description:
      - V(absent) restores the earlier values of the two keys. CDI stays on while a CDI spec of this collection stays on
        the node, or while a container holds a device by any CDI name, because the container needs CDI at a restart.
        CDI also stays on if the kubelet's checkpoint or the container runtime does not tell who holds such a device.
      - V(recovered) finishes or undoes an interrupted change. The preflight check uses this state.
    type: str
    choices: [present, absent, recovered]
    default: present
  declaration:
    description: Result of M(nodedevices.kubernetes.declaration); by default the host's own. Read by the action.
    type: dict
  command:
    description: Path of the plugin's command on the node, which queries the runtime; not needed for V(recovered).
    type: path
  max_parallel_restarts:
    description: How many nodes of a run may restart their runtime at the same time. Read by the action.
    type: int
    default: 1
  specs:
    description: Result of M(nodedevices.kubernetes.cdi_specs), if that module removed its specs before.
    type: dict
    default: {}
  cri_socket:
    description: The container runtime's socket; set by the action. See M(nodedevices.kubernetes.node_preflight).
    type: path
  device_plugin_dir:
    description: The kubelet's device plugin directory; set by the action.
    type: path
  may_restart:
    description: Whether the module may restart the runtime, or only reports the restart; set by the action.
    type: bool
    default: false
  this_release:
    description: Path on the node of this release's source, if the command is too old; set by the action.
    type: path
extends_documentation_fragment: nodedevices.kubernetes.shared.code
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Turn CDI on
  nodedevices.kubernetes.cdi_runtime:
    command: /usr/local/bin/node-device-plugin
"""

RETURN = r"""
restarted:
  description: Whether the module restarted the runtime, or would restart it (check mode).
  type: bool
  returned: if something changes
seconds:
  description: Seconds during which the runtime did not answer; null if the recovery at boot completed the change.
  type: float
  returned: if the runtime was restarted
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

from ..module_utils.converge import cdi_runtime, node


def main():
    node.door(cdi_runtime)


if __name__ == "__main__":
    main()
