# SPDX-License-Identifier: Apache-2.0
"""Writes the CDI specs of role cdi_specs, and judges other owners' specs.

Runs on nodes: Python 3.9. The caller has loaded the plugin's code (module_utils/node_code.py).
"""

from __future__ import annotations

import time

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import holders as asking
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.accounts import numbers
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.ledger import sha256

PARAMS = {
    "state": {"type": "str", "choices": ["present", "pruned", "absent"], "default": "present"},
    "configuration": {"type": "dict", "default": {"resources": []}},
    "templates": {"type": "dict", "default": {}},
    **asking.PARAMS,
}
_OWNER = "cdi_specs"
# Seconds that the kubelet may take to notice that the plugin no longer offers a device.
_TIMEOUT = 5.0
_PAUSE = 0.5


def converge(node, params):
    """Converge the specs.

    Beside the report's keys, the answer has ``files`` (the hash of each spec file after the run, by path), ``devices``
    (undeclared ones that stay, each with the reason), ``in_use`` (why devices in use stop the run), ``crashing`` and
    ``broken`` (problems of other owners' files).
    """
    from node_device_plugin.cdi import role_specs
    from node_device_plugin.declaration import accounts, cdi, parse_configuration

    configuration = parse_configuration(params["configuration"])
    configuration, unknown = accounts.with_numbers(configuration, numbers(**accounts.names(configuration.resources)))
    with node.ledger() as ledger:
        own_paths = set(ledger.of(_OWNER))
        runtime = role_specs.Runtime(**node.facts["runtime"])
        found = role_specs.find(node.facts["cdi_directories"], own_paths, runtime.accepted)
        specs = role_specs.Specs(configuration.resources, params["templates"], found, runtime)
        staying, in_use = _staying(node, specs, params)
        wanted = specs.wanted(held.leftover for held in staying)
        files = _files(wanted)
        problems = [*map(str, unknown), *specs.refused(wanted)]
        if params["state"] == "present":
            problems += specs.missing()
        ...
