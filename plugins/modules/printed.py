# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs on the controller.

DOCUMENTATION = r"""
module: printed
short_description: Print a text of several lines as it is
description:
  - Prints a text to the terminal and to Ansible's log. M(ansible.builtin.debug) prints such a text as one line, unless
    C(callback_result_format) is C(yaml).
  - With a callback for programs (C(ansible.posix.json), C(ansible.posix.jsonl)), the action prints nothing, and the
    result contains the text.
options:
  text:
    description: The text.
    type: str
    required: true
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Print the tables of the report
  nodedevices.kubernetes.printed:
    text: "{{ node_devices_report.table }}"
"""

RETURN = r"""
msg:
  description: The text.
  type: str
  returned: always
"""
