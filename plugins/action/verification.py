# SPDX-License-Identifier: Apache-2.0
"""Verifies a node by the plugin's command on it; see plugins/modules/verification.py for its documentation."""

from __future__ import annotations

import json

from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import plugin_cli, task_arguments

_OWNER = "verification"


class ActionModule(ActionBase):
    """One execution; another one where there is something new to remember."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        host = (task_vars or {}).get("inventory_hostname", "")
        if self._task.check_mode:
            return {**result, "skipped": True, "msg": "a proof needs a pod, which check mode does not make"}
        arguments = task_arguments.of(self)
        command = [str(word) for word in arguments["command"]]
        configuration = json.dumps(arguments["declaration"]["configuration"])
        try:
            report = plugin_cli.answer(self, command, configuration, task_vars)
        except plugin_cli.PluginCliError as error:
            return {**result, "failed": True, "msg": f"{host}: {error}"}
        result.update(changed=False, **report)
        if report["proven"] != report["proven_before"]:
            content = json.dumps(report["proven"], indent=4, sort_keys=True) + "\n"
            written = self._execute_module(
                module_name="nodedevices.kubernetes.managed_files",
                module_args={"owner": _OWNER, "files": [{"path": arguments["record"], "content": content}]},
                task_vars=task_vars,
            )
            if written.get("failed"):
                return written
            result.update(changed=written["changed"], diff=written["diff"])
        return result
