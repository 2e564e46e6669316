# SPDX-License-Identifier: Apache-2.0
"""Writes an owner's files on a node; see plugins/modules/managed_files.py for its documentation."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import planned_files, preflight, task_arguments


class ActionModule(ActionBase):
    """Executes its module once, or not at all if the play's preflight found the files in place."""

    def run(self, tmp=None, task_vars=None):
        result, look = super().run(tmp, task_vars), preflight.Preflight(self, task_vars)
        return {**result, **planned_files.converge(look, look.known, task_arguments.of(self))}
