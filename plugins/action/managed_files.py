# SPDX-License-Identifier: Apache-2.0
"""Executes the module of the action's name: managed_files or service. See plugins/modules/."""

from __future__ import annotations

from ..plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Executes its module, unless the play's preflight has its answer."""

    def act(self, given):
        return self.preflight.execute(self._task.action.rpartition(".")[2], given)
