# SPDX-License-Identifier: Apache-2.0
"""Executes the module that scans a node's devices by the plugin's code."""

from __future__ import annotations

from ..plugin_utils.node_action import NodeAction
from ..plugin_utils.wheels import WheelsError


class ActionModule(NodeAction):
    """Executes its module once, and again if the node needs the code."""

    only_shown = True

    def act(self, given):
        try:
            return self._execute_with_code("nodedevices.kubernetes.node_scan", given, self._vars)
        except WheelsError as error:
            return {"failed": True, "msg": str(error)}
