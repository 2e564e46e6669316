#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: service
short_description: Keep a systemd service or timer running with the current content of its files
description:
  - Enables and starts a service, and restarts it only if it started with another content of O(files). So if a play dies
    after it wrote a file and before the restart, the next play restarts the service. A handler would not do this.
  - The module records in C(/run) with which content a unit started. The times of files decide nothing, because a node's
    clock may be wrong.
  - Runs a daemon-reload only if a unit changed, because a daemon-reload can remove device rules from running
    containers.
  - If the service does not start, the module fails with the service's last journal lines.
options:
  name:
    description: Name of the unit, with its suffix.
    type: str
    required: true
  state:
    description: V(absent) stops and disables the unit. The module never removes its files.
    type: str
    choices: [started, absent]
    default: started
  files:
    description:
      - Files that systemd or the process reads when the process starts. A link leads to the directory of the program's
        version, beside the directories of other versions.
    type: list
    elements: path
    default: []
  reload_check:
    description:
      - Command that fails if the process does not use its current configuration files. Then the module reloads the
        service (C(systemctl reload)). The command must not write anything.
    type: list
    elements: str
    default: []
  pending:
    description:
      - Whether this play changes one of O(files). Outside check mode, a record of the unit's start takes precedence.
    type: bool
    default: false
  pending_reload:
    description: Whether this play changes what O(reload_check) checks. The module then reports a reload in any case.
    type: bool
    default: false
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Run the plugin
  nodedevices.kubernetes.service:
    name: node-device-plugin.service
    files: [/etc/systemd/system/node-device-plugin.service]
    reload_check: [node-device-plugin, reload, --check]
"""

RETURN = r"""
actions:
  description: Actions of the module; in check mode, the predicted actions.
  type: list
  elements: str
  returned: success
invocation_id:
  description: The unit's InvocationID in systemd, which changes at each start.
  type: str
  returned: success
"""

from ..module_utils.converge import node, service


def main():
    node.door(service)


if __name__ == "__main__":
    main()
