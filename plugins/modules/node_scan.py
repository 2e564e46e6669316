#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: node_scan
short_description: List the devices of a node, with a suggested resource for each
description:
  - Runs C(node-device-plugin scan) on a node that need not have the plugin. The action of the same name sends the
    plugin's source to the task's temporary directory, and Ansible removes it after the task. The module changes nothing
    and opens no device.
options:
  domain:
    description: Domain of the suggested resources.
    type: str
    default: devices.example.com
  archive:
    description: Path on the node of the plugin's source; set by the action.
    type: path
author: The node-devices authors (!UNKNOWN)
"""

EXAMPLES = r"""
- name: Read the node's devices
  nodedevices.kubernetes.node_scan:
    domain: devices.example.com
  register: node_devices_scan
"""

RETURN = r"""
scan:
  description: The answer of C(node-device-plugin scan -o json).
  type: dict
  returned: success
"""

import json
import sys

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(
        argument_spec={
            "domain": {"type": "str", "default": "devices.example.com"},
            "archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    # Check the version, because Ansible accepts an older Python on nodes.
    if sys.version_info < (3, 9):  # noqa: UP036
        found = "%d.%d" % sys.version_info[:2]
        module.fail_json(
            msg=f"the node's Python is {found}, but 3.9 or later is required: set ansible_python_interpreter"
        )
    # With -I, Python imports no modules from the working directory or the user's directory.
    command = [
        sys.executable,
        "-I",
        module.params["archive"],
        "scan",
        "-o",
        "json",
        "--domain",
        module.params["domain"],
    ]
    code, answer, error = module.run_command(command)
    try:
        # Ignore exit code 1, which means that a class of devices is unreadable. The answer has the reason.
        module.exit_json(changed=False, scan=json.loads(answer))
    except ValueError:
        lines = error.strip().splitlines() or [f"exit code {code}"]
        module.fail_json(msg=lines[-1])


if __name__ == "__main__":
    main()
