#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

DOCUMENTATION = r"""
module: node_scan
short_description: List the devices of a node, with a suggested resource for each
description:
  - Does the same as C(node-device-plugin scan) on a node that need not have the plugin, because the action of the same
    name sends missing code for the time of the task. The module changes nothing and opens no device.
options:
  domain:
    description: Domain of the suggested resources.
    type: str
    default: devices.example.com
extends_documentation_fragment: nodedevices.kubernetes.shared.code
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

import asyncio

from ansible.module_utils.basic import AnsibleModule

from ..module_utils import node_code
from ..module_utils.ledger import sentence


def main():
    module = AnsibleModule(
        argument_spec={"domain": {"type": "str", "default": "devices.example.com"}, "code": node_code.ARGUMENT},
        supports_check_mode=True,
    )
    node_code.load_for(module)
    from node_device_plugin.diagnostics import scan

    domain = module.params["domain"]
    problem = scan.domain_problem(domain)
    if problem:
        module.fail_json(msg=f"node-device-plugin: --domain: {problem}")
    try:
        # A class of devices that is unreadable is in the answer, with the reason.
        module.exit_json(changed=False, scan=asyncio.run(scan.scan(domain)))
    except OSError as error:
        module.fail_json(msg=sentence(error))


if __name__ == "__main__":
    main()
