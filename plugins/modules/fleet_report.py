# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs on the controller.

DOCUMENTATION = r"""
module: fleet_report
short_description: Write what was read of all nodes as JSON and as a page
description:
  - Puts together what M(nodedevices.kubernetes.node_status) returned for each host, and writes C(status.json) and
    C(status.html) on the controller. The page needs no other file and no network.
  - In check mode it writes nothing, and returns the table.
options:
  hosts:
    description: Names of hosts; what was read of each is in its variable C(node_devices_status).
    type: list
    elements: str
    required: true
  directory:
    description: A folder on the controller, which is made where it is missing. Relative to where Ansible was started.
    type: path
    required: true
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Write the report
  nodedevices.kubernetes.fleet_report:
    hosts: "{{ ansible_play_hosts_all }}"
    directory: .report
  run_once: true
  register: report
"""

RETURN = r"""
table:
  description: The fleet as tables of text.
  type: str
  returned: always
summary:
  description: Nodes and resources counted, as docs/status.md describes it.
  type: dict
  returned: always
files:
  description: Paths of what was written, V(json) and V(html).
  type: dict
  returned: unless in check mode
"""
