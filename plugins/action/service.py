# SPDX-License-Identifier: Apache-2.0
"""Makes a systemd service run with its current files. See plugins/modules/service.py."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight, task_arguments
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction


class ActionModule(HidingAction):
    """Executes its module, unless the play's preflight predicted no change."""

    def run(self, tmp=None, task_vars=None):
        result, look, arguments = (
            super().run(tmp, task_vars),
            preflight.Preflight(self, task_vars),
            task_arguments.of(self),
        )
        # If the arguments differ from the preflight's arguments, the module runs.
        asked = {name: value for name, value in arguments.items() if value}
        return {**result, **look.execute("service", arguments, look.foreseen("service", asked))}
