#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: node_tools
short_description: The plugin's virtual environment on a node
description:
  - Makes the environment O(root)C(/versions/<name>), the link O(root)C(/current) to it and the command.
  - Where the plugin's service runs from the current environment, another one goes on trial. The service is restarted,
    and must serve within O(timeout) what it served before (every resource registered, its stream open, the same devices
    listed by the kubelet and healthy). Else the link goes back, the old version runs again, and the task fails with the
    reason; it is not tried again then, unless O(retry) asks for it. A power cut in the midst brings the old version up;
    a run that was killed is undone by the next.
  - It stays while another role has something on the node, which may need the command to take it away.
  - The action of the same name gathers the wheels on the controller, and sends them if the environment is not there;
    the node needs neither pip nor a network. An environment is made under a name that nobody uses, and gets its own
    when it is complete. Nothing is executed where the play has looked at the node, and nothing was to be done then.
options:
  state:
    description:
      - Whether it is there.
      - V(rolled_back) undoes the last upgrade, if that was not undone already, or goes to the version O(name) that is
        still on the node. Needs nothing from the controller.
    type: str
    choices: [present, absent, rolled_back]
    default: present
  root:
    description: Folder of the environments.
    type: path
    default: /opt/node-devices
  command:
    description: Link to the command; empty makes none.
    type: str
    default: /usr/local/bin/node-device-plugin
  keep:
    description: How many environments stay, the newest first, the current one and the one before it among them.
    type: int
    default: 2
  timeout:
    description: Seconds in which another version must serve what was served before.
    type: int
    default: 60
  retry:
    description: Whether the version that did not stand its trial on this node is tried again.
    type: bool
    default: false
  node:
    description:
      - What M(nodedevices.kubernetes.node_preflight) found. If left out, what the play has registered of it as
        C(node_devices_node), and where the play has not looked, the action looks.
    type: dict
  cache:
    description: Folder on the controller for what is built and fetched; read by the action.
    type: path
  wheelhouse:
    description:
      - Folder on the controller with the locked wheels, in place of fetching them; read by the action.
      - Default are those of the bundle that the controller was set up from, if it was.
    type: path
  specs:
    description:
      - What M(nodedevices.kubernetes.cdi_specs) returned, if it ran before with nothing declared; read by the action.
    type: dict
  host_devices:
    description: What M(nodedevices.kubernetes.host_devices) returned, if it ran before; read by the action.
    type: dict
  left:
    description: Roles that would still have something on the node, instead of asking the ledger; set by the action.
    type: list
    elements: str
  name:
    description:
      - Name of the environment; set by the action.
      - For O(state=rolled_back) a name, or a version alone, which is the newest environment of that version.
    type: str
  archive:
    description: Archive with the wheels, on the node; set by the action.
    type: path
  wheels:
    description: File name and sha256 of each wheel; set by the action.
    type: dict
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Install the plugin's environment
  nodedevices.kubernetes.node_tools:
    cache: ~/.cache/node-devices
"""

RETURN = r"""
environment:
  description: The environment's folder.
  type: str
  returned: success
incomplete:
  description: Whether wheels are needed to go on.
  type: bool
  returned: success
was:
  description: Name of the environment that was current.
  type: str
  returned: success, if O(state) is not V(absent)
restarted:
  description: Whether the service was restarted, or in check mode would be.
  type: bool
  returned: success, if O(state) is not V(absent)
seconds:
  description: From the service's stop until everything was served again, as it was seen from outside.
  type: float
  returned: if the service was restarted
kept:
  description: Paths that are no longer wanted and stay, each with the reason.
  type: list
  elements: dict
  returned: success
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.nodedevices.kubernetes.plugins.module_utils import node_module
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import is_complete
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.environments import Environments


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent", "rolled_back"], "default": "present"},
            "root": {"type": "path", "default": "/opt/node-devices"},
            "command": {"type": "str", "default": "/usr/local/bin/node-device-plugin"},
            "keep": {"type": "int", "default": 2},
            "timeout": {"type": "int", "default": 60},
            "retry": {"type": "bool", "default": False},
            "node": {"type": "dict"},
            "cache": {"type": "path"},
            "wheelhouse": {"type": "path"},
            "specs": {"type": "dict"},
            "host_devices": {"type": "dict"},
            "left": {"type": "list", "elements": "str"},
            "name": {"type": "str"},
            "archive": {"type": "path"},
            "wheels": {"type": "dict"},
        },
        required_if=[("state", "present", ["name"])],
        supports_check_mode=True,
    )
    name, state = module.params["name"], module.params["state"]
    directory = os.path.join(module.params["root"], "versions", name or "")
    with node_module.ledger_of(module) as ledger:
        environments = Environments(module, ledger)
        if state == "present" and not (is_complete(directory, name) or module.check_mode or module.params["archive"]):
            # Refuse before the controller builds and sends the wheels.
            environments.refuse_again(name)
            module.exit_json(changed=False, incomplete=True, environment=directory)
        report = environments.converge(state, name)
    node_module.end(module, report, incomplete=False, **environments.told)


if __name__ == "__main__":
    main()
