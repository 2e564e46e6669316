#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: service
short_description: A systemd service or timer that runs with what its files say now
description:
  - Makes a service enabled and running, and restarts it only if the process is older than one of O(files). So a play
    that died between writing a file and restarting is fixed by the next one, which a handler would not do.
  - Reloads it where only O(reload_files) changed, and only if the process itself says that it needs to
    (O(reload_check)). A process that already took them in is left alone.
  - Systemd reads its units again only where one changed, because that can take device rules away from running
    containers.
  - A service that does not come up fails with its last journal lines.
  - The action of the same name executes nothing where the play has looked at the node, and nothing was to be done then.
options:
  name:
    description: Name of the unit, with its ending.
    type: str
    required: true
  state:
    description: V(absent) stops and disables it; its files are someone else's.
    type: str
    choices: [started, absent]
    default: started
  files:
    description: Files and links that the process reads when it starts.
    type: list
    elements: path
    default: []
  reload_files:
    description: Files that the process reads again when it is reloaded (C(systemctl reload)).
    type: list
    elements: path
    default: []
  reload_check:
    description: Command that fails if the process does not run with what O(reload_files) say now; writes nothing.
    type: list
    elements: str
    default: []
  pending:
    description: Whether this play would change one of the files, for check mode; otherwise the files themselves tell.
    type: bool
    default: false
  pending_reload:
    description:
      - Whether this play changes one of O(reload_files), or would. Then the service has another configuration, also if
        the process has taken it in by itself.
    type: bool
    default: false
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Run the plugin
  nodedevices.kubernetes.service:
    name: node-device-plugin.service
    files: [/etc/systemd/system/node-device-plugin.service]
    reload_files: [/etc/node-device-plugin/config.yaml]
    reload_check: [node-device-plugin, reload, --check]
"""

RETURN = r"""
actions:
  description: What was done, or in check mode would be.
  type: list
  elements: str
  returned: success
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import play_lock
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.service import Service, run, stop


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["started", "absent"], "default": "started"},
            "files": {"type": "list", "elements": "path", "default": []},
            "reload_files": {"type": "list", "elements": "path", "default": []},
            "reload_check": {"type": "list", "elements": "str", "default": []},
            "pending": {"type": "bool", "default": False},
            "pending_reload": {"type": "bool", "default": False},
        },
        required_by={"reload_files": ["reload_check"]},
        supports_check_mode=True,
    )
    play_lock.renew(module)
    service = Service(module)
    if module.params["state"] == "started":
        run(service, module.params)
    else:
        stop(service)
    module.exit_json(**service.answer())


if __name__ == "__main__":
    main()
