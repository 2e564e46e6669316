# SPDX-License-Identifier: Apache-2.0
"""Installs, rolls back or removes the plugin's environment."""

from __future__ import annotations

from .. import node_code
from ..environment import targets
from ..environment.build import is_complete
from ..environment.environments import Environments

PARAMS = {
    "state": {"type": "str", "choices": ["present", "absent", "rolled_back"], "default": "present"},
    "root": {"type": "path", "default": "/opt/node-devices"},
    "command": {"type": "str", "default": "/usr/local/bin/node-device-plugin"},
    "keep": {"type": "int", "default": 2},
    "timeout": {"type": "int", "default": 60},
    "retry": {"type": "bool", "default": False},
    "left": {"type": "list", "elements": "str"},
    "name": {"type": "str"},
    "targets": {"type": "dict"},
    "archive": {"type": "path"},
    "wheels": {"type": "dict"},
    "code": node_code.ARGUMENT,
}
CHECKS = {"required_if": [("state", "present", ["targets"])]}


def converge(node, params):
    """Converge the environments below ``root`` to ``state``. The present state needs the plugin's code, loaded."""
    name, state, target = params["name"], params["state"], None
    if state == "present":
        target = targets.own(params["targets"])
        name = params["targets"][target]["environment"]
    with node.ledger() as ledger:
        environments = Environments(node, ledger, params)
        directory = environments.versions.directory(name or "")
        if state == "present" and not (is_complete(directory, name) or node.check_mode or params["archive"]):
            # Check this before the controller builds and sends the wheels.
            environments.refuse_again(name)
            return {"changed": False, "incomplete": True, "environment": directory, "target": target}
        report = environments.converge(state, name)
        return node.answer(report, incomplete=False, **environments.told)
