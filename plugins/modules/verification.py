# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name; the plugin's command does it on the node.

DOCUMENTATION = r"""
module: verification
short_description: Verify a node from its declaration to a device inside a container
description:
  - Runs the plugin's command C(verify) on the node with what is declared, and remembers what it proved.
  - The result is the report. It fails where something cannot be asked, not where something is wrong. In check mode it
    does nothing.
options:
  command:
    description: C(node-device-plugin verify) with its options, which reads the configuration from its input.
    type: list
    elements: str
    required: true
  record:
    description: The file that what was proven is remembered in. The command's option C(--record) names the same.
    type: path
    required: true
extends_documentation_fragment:
  - nodedevices.kubernetes.node.declared
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Verify the node
  nodedevices.kubernetes.verification:
    declaration: "{{ declaration }}"
    command: [node-device-plugin, verify, --config, /dev/stdin, --output, json, --record, "{{ record }}"]
    record: "{{ record }}"
"""

RETURN = r"""
runtime:
  description: Name and version of the container runtime.
  type: str
  returned: where it is not skipped
kubelet:
  description: Whether it answers, V(running) or V(not answering); V(none) where there is none.
  type: str
  returned: where it is not skipped
resources:
  description: A row for each resource.
  type: list
  elements: dict
  returned: where it is not skipped
problems:
  description: What is wrong.
  type: list
  elements: str
  returned: where it is not skipped
"""
