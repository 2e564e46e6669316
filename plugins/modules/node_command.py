# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name.

DOCUMENTATION = r"""
module: node_command
short_description: Run a command on a node, and read only its output
description:
  - Executes M(ansible.builtin.command) on the node. Unlike that module, the node can answer only with the keys below,
    so that it cannot set a variable.
options:
  argv:
    description: The command and its arguments.
    type: list
    elements: str
    required: true
  check_argv:
    description: The command that runs instead in check mode. It must change nothing. Without this option, no command
      runs in check mode.
    type: list
    elements: str
  removes:
    description: If this path does not exist, the command does not run.
    type: path
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Reload systemd
  nodedevices.kubernetes.node_command:
    argv: [systemctl, daemon-reload]
"""

RETURN = r"""
rc:
  description: The command's exit code.
  type: int
  returned: always
stdout:
  description: The command's output.
  type: str
  returned: always
stderr:
  description: The command's error output.
  type: str
  returned: always
"""
