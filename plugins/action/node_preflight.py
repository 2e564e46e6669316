# SPDX-License-Identifier: Apache-2.0
"""Reads a node's facts, and reports unmet requirements of the run. See plugins/modules/node_preflight.py."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction


class ActionModule(HidingAction):
    """Executes its module, unless the play's preflight has already run."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        look = preflight.Preflight(self, task_vars)
        try:
            seen = look.look(self._task.args)
        except preflight.ERRORS as error:
            return {**result, **look.failed(error)}
        return {**result, **seen.told({**seen.node, "changed": False})}
