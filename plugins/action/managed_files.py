# SPDX-License-Identifier: Apache-2.0
"""Writes an owner's files on a node. See plugins/modules/managed_files.py."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Executes its module, unless the play's preflight has its answer."""

    def act(self, given):
        return self.preflight.execute("managed_files", given)
