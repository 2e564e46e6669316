# SPDX-License-Identifier: Apache-2.0
"""Runs a command on a node. See plugins/modules/node_command.py."""

from __future__ import annotations

from ..plugin_utils.node_action import NodeAction

_KEYS = ("changed", "failed", "skipped", "msg", "rc", "stdout", "stderr", "warnings", "traceback")


class ActionModule(NodeAction):
    """Executes Ansible's module command. If the command did not run, the result has no output."""

    _VALID_ARGS = frozenset(("argv", "check_argv", "removes"))

    def act(self, given):
        # Ansible's own action for this module sets this key, too.
        arguments = {**given, "_uses_shell": False}
        instead = arguments.pop("check_argv", None)
        if instead and self._task.check_mode:
            # The variable ansible_check_mode does not tell the check mode of a role or a block.
            arguments["argv"], self._task.check_mode = instead, False
        answer = self._execute_module(module_name="ansible.legacy.command", module_args=arguments, task_vars=self._vars)
        if not answer.get("failed") and answer.get("start") is None:
            # The module writes its reason into the output.
            answer.update(stdout="", stderr="")
        return {key: answer[key] for key in _KEYS if key in answer}
