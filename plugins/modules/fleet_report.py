# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which runs on the controller.

DOCUMENTATION = r"""
module: fleet_report
short_description: Write the status of all nodes as JSON and as a page
description:
  - Combines the M(nodedevices.kubernetes.node_status) results of all hosts, and writes C(status.json) and
    C(status.html) on the controller. The page needs no other file and no network.
  - In check mode, the action writes nothing and returns the table.
options:
  hosts:
    description: Names of hosts. The variable C(node_devices_status) of each host contains its status.
    type: list
    elements: str
    required: true
  directory:
    description: Directory on the controller, relative to Ansible's working directory; created if missing.
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
  description: The fleet as text tables.
  type: str
  returned: always
summary:
  description: Counts of nodes and resources, as docs/status.md describes them.
  type: dict
  returned: always
files:
  description: Paths of the written files, V(json) and V(html).
  type: dict
  returned: unless in check mode
"""
