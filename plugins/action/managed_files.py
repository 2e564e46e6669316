# SPDX-License-Identifier: Apache-2.0
"""Writes an owner's files on a node. See plugins/modules/managed_files.py."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight, task_arguments
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction


class ActionModule(HidingAction):
    """Executes its module, unless the play's preflight has its answer."""

    def run(self, tmp=None, task_vars=None):
        result, look = super().run(tmp, task_vars), preflight.Preflight(self, task_vars)
        return {**result, **look.execute("managed_files", task_arguments.of(self))}
