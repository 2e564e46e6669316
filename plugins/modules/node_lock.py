#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: node_lock
short_description: Release the node lock of this play
description:
  - Removes the lock that M(nodedevices.kubernetes.node_preflight) took (option C(lock)), if this play still holds it.
    The lock is a file below C(/run), so a reboot removes it. Tasks that take or release the lock report no change.
  - Every other module of this collection renews the lock if the play sets the C(environment) that
    M(nodedevices.kubernetes.node_preflight) returned. Such a module fails if another play has taken the lock.
options:
  state:
    description: V(released) removes the lock. V(renewed) extends the lock, for actions with long waits.
    type: str
    choices: [released, renewed]
    default: released
  seconds:
    description: Minimum number of seconds until the renewed lock expires; set by actions with long waits.
    type: float
    default: 0
  owner:
    description: Identity of this play; set by the action.
    type: str
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Let go of the node
  nodedevices.kubernetes.node_lock:
"""

RETURN = r"""{}"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import play_lock


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
