# SPDX-License-Identifier: Apache-2.0
"""Makes a systemd service run with its current files; see plugins/modules/service.py for its documentation."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight, task_arguments


class ActionModule(ActionBase):
    """Executes its module once, or not at all if the play's preflight found nothing to do."""

    def run(self, tmp=None, task_vars=None):
        result, look, arguments = (
            super().run(tmp, task_vars),
            preflight.Preflight(self, task_vars),
            task_arguments.of(self),
        )
        # If a file changes or the state differs, the arguments differ from the preflight's, and the module runs.
        asked = {name: value for name, value in arguments.items() if value}
        return {**result, **look.execute("service", arguments, look.foreseen("service", asked))}
