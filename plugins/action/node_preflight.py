# SPDX-License-Identifier: Apache-2.0
"""Reads a node's facts, and reports unmet requirements of the run. See plugins/modules/node_preflight.py."""

from __future__ import annotations

from ..plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Executes its module, unless the play's preflight has already run."""

    def act(self, given):
        return {**self.preflight.look(given), "changed": False}
