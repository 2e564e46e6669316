# SPDX-License-Identifier: Apache-2.0
"""Writes each executed module and each command on a host, so that a scenario can count them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: executions
type: notification
short_description: Writes what is executed on each host
description:
  - Into the folder that the environment variable E(NODE_DEVICES_EXECUTIONS) names, a file for each host with a line for
    each execution. A callback is not told of them, so the functions that make them are wrapped.
"""


class CallbackModule(CallbackBase):
    """Wraps Ansible's functions before Ansible forks the tasks' processes."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "executions"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._directory = Path(os.environ["NODE_DEVICES_EXECUTIONS"])
        self._directory.mkdir(parents=True, exist_ok=True)
        execute, command = ActionBase._execute_module, ActionBase._low_level_execute_command
        directory = self._directory

        def told(action: Any, what: str) -> None:
            with (directory / str(action._play_context.remote_addr)).open("a") as file:
                file.write(f"{action._task.get_name()}: {what}\n")

        def execute_module(action: Any, *args: Any, **kwargs: Any) -> Any:
            told(action, str(kwargs.get("module_name") or (args[0] if args else action._task.action)))
            action._in_module = True
            try:
                return execute(action, *args, **kwargs)
            finally:
                action._in_module = False

        def low_level(action: Any, cmd: str, *args: Any, **kwargs: Any) -> Any:
            # Do not count the commands of a module's execution.
            if not getattr(action, "_in_module", False):
                told(action, cmd)
            return command(action, cmd, *args, **kwargs)

        ActionBase._execute_module = execute_module
        ActionBase._low_level_execute_command = low_level
