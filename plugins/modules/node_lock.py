#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: node_lock
short_description: Let go of a node that this play keeps others off
description:
  - Removes the lock that M(nodedevices.kubernetes.node_preflight) took (its option C(lock)), if this play still has it.
    The lock is a file below C(/run), which a boot empties; taking and removing it is no change of the node.
  - Every other module of ours renews the lock, in a play whose C(environment) is what
    M(nodedevices.kubernetes.node_preflight) returned as C(environment), and fails where another play has it by now.
options:
  state:
    description: V(released) removes the lock. V(renewed) has it lapse later; actions that wait for long use it.
    type: str
    choices: [released, renewed]
    default: released
  seconds:
    description: How long the renewed lock lasts at least; set by actions that wait for what takes longer.
    type: float
    default: 0
  owner:
    description: Which play this is; set by the action.
    type: str
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Let go of the node
  nodedevices.kubernetes.node_lock:
"""

RETURN = r"""{}"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import play_lock


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["released", "renewed"], "default": "released"},
            "seconds": {"type": "float", "default": 0},
            "owner": {"type": "str"},
        },
        supports_check_mode=True,
    )
    if module.params["state"] == "renewed":
        play_lock.renew(module, module.params["seconds"])
    elif not module.check_mode:
        try:
            play_lock.release(module.params["owner"])
        except OSError as error:
            module.fail_json(msg=f"{play_lock.PATH}: {error.strerror}")
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
