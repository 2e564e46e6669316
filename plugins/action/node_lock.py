# SPDX-License-Identifier: Apache-2.0
"""Releases the lock of a node. See plugins/modules/node_lock.py."""

from __future__ import annotations

from ..plugin_utils import play
from ..plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Executes its module, except in check mode, which takes no lock."""

    def act(self, given):
        if self._task.check_mode:
            return {"changed": False}
        return self._execute_module(
            module_name="nodedevices.kubernetes.node_lock",
            module_args={"owner": play.wanted_lock(0, host=self.host)["owner"]},
            task_vars=self._vars,
        )
