# SPDX-License-Identifier: Apache-2.0
"""Installs, rolls back or removes the plugin's environment.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.build import is_complete
from ansible_collections.nodedevices.kubernetes.plugins.module_utils.environment.environments import Environments

PARAMS = {
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
}


def converge(node, params):
    """Converge the environments below ``root`` to ``state``.

    Without ``name``, the present state is the current environment: the preflight check does not know the name yet.
    """
    state = params["state"]
    with node.ledger() as ledger:
        environments = Environments(node, ledger, params)
        versions = environments.versions
        name = params["name"] or (versions.current() if state == "present" else None)
        directory = versions.directory(name or "")
        is_missing = state == "present" and not is_complete(directory, name)
        if is_missing and not (params["archive"] or (node.check_mode and name)):
            # Check this before the controller builds and sends the wheels.
            environments.refuse_again(name)
            return {"changed": False, "incomplete": True, "environment": directory}
        report = environments.converge(state, name)
        return node.answer(report, incomplete=False, **environments.told)
