# SPDX-License-Identifier: Apache-2.0
"""Makes a systemd service run with its current files. See plugins/modules/service.py."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Executes its module, unless the play's preflight has its answer."""

    def act(self, given):
        return self.preflight.execute("service", given)
