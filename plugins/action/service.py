# SPDX-License-Identifier: Apache-2.0
"""Has a systemd service run with what its files say; see plugins/modules/service.py for its documentation."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight, task_arguments


class ActionModule(ActionBase):
    """One execution; none where the play has looked at the node, and there was nothing to do."""

    def run(self, tmp=None, task_vars=None):
        result, look, arguments = (
            super().run(tmp, task_vars),
            preflight.Preflight(self, task_vars),
            task_arguments.of(self),
        )
        # With a file that changes, or another state, these are not the arguments that the play has looked with.
        asked = {name: value for name, value in arguments.items() if value}
        return {**result, **look.execute("service", arguments, look.foreseen("service", asked))}
