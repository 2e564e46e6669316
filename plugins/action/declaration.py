# SPDX-License-Identifier: Apache-2.0
"""Reads a host's declaration on the controller; see plugins/modules/declaration.py for its documentation."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration


class ActionModule(ActionBase):
    """Touches no node: needs no connection."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(("settings",))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        try:
            read = declaration.read(task_vars, self._templar.template, self._task.args.get("settings"))
        except declaration.DeclarationProblems as problems:
            host = task_vars.get("inventory_hostname", "")
            lines = [f"{host}: {line}" for line in problems.lines]
            result.update(
                failed=True,
                msg="The declaration cannot be used; no node was touched.\n" + "\n".join(lines),
            )
            return result
        result.update(changed=False, **read.as_data())
        return result
