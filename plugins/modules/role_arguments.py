# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name, which touches no node.

DOCUMENTATION = r"""
module: role_arguments
short_description: Hold variables to the argument specs of roles
description:
  - Says what is wrong with a host's variables by the argument specs of several roles of this collection, before the
    first of them does anything. For playbooks whose roles are imported by C(tasks_from), which holds them to nothing.
options:
  roles:
    description: Names of roles of this collection.
    type: list
    elements: str
    required: true
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Check the variables
  nodedevices.kubernetes.role_arguments:
    roles: [cdi_runtime, cdi_specs]
"""

RETURN = r"""{}"""
