# SPDX-License-Identifier: Apache-2.0
# Documentation of the action of the same name.

DOCUMENTATION = r"""
module: node_facts
short_description: Gather a node's facts for its own declaration
description:
  - Executes M(ansible.builtin.setup) on the node, and stores its facts below C(ansible_facts) of this host.
  - A node is trusted only for what it reports about itself. Therefore the action checks the type of each fact, and
    leaves out facts with unknown names. It also leaves out a fact if the host has a variable of the same name, because
    Ansible would override the variable. A warning names each fact that is left out,
    except those of network interfaces without a digit in their name.
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Gather facts if the declaration uses them
  nodedevices.kubernetes.node_facts:
"""

RETURN = r"""
ansible_facts:
  description: The facts.
  type: dict
  returned: success
"""
