# SPDX-License-Identifier: Apache-2.0
"""Sends the plugin's source to the node's temporary directory, and runs the plugin's command scan on the node."""

from __future__ import annotations

import pathlib
import tempfile

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import scan_archive, task_arguments
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction


class ActionModule(HidingAction):
    """Executes its module once. Ansible removes the archive with the task's temporary directory."""

    only_shown = True

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = task_arguments.of(self, task_vars)
        self._make_tmp_path()
        shell = self._connection._shell
        on_node = shell.join_path(shell.tmpdir, "node-device-plugin.zip")
        with tempfile.TemporaryDirectory() as directory:
            archive = pathlib.Path(directory) / "node-device-plugin.zip"
            scan_archive.write(archive)
            self._transfer_file(str(archive), on_node)
        self._fixup_perms2((shell.tmpdir, on_node))
        arguments["archive"] = on_node
        answer = self._execute_module(
            module_name="nodedevices.kubernetes.node_scan", module_args=arguments, task_vars=task_vars
        )
        return {**result, **answer}
