# SPDX-License-Identifier: Apache-2.0
"""Writes each task's duration, for bench/fleet.py."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: task_times
type: notification
short_description: Writes how long each task took
description:
  - Into the file that the environment variable E(NODE_DEVICES_TASK_TIMES) names, a list of C(task) and C(seconds), in
    the order in which they ran, for all hosts of a batch together.
"""


class CallbackModule(CallbackBase):
    """Records each task's duration. A task ends when the next task or play begins, or at the end of the playbook."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "task_times"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._times: list[dict[str, Any]] = []
        self._task = ""
        self._began = 0.0

    def _end(self) -> None:
        if self._task:
            self._times.append({"task": self._task, "seconds": round(time.monotonic() - self._began, 4)})
        self._task = ""

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._end()
        self._task, self._began = task.get_name(), time.monotonic()

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._end()

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._end()
        with open(os.environ["NODE_DEVICES_TASK_TIMES"], "w") as file:
            json.dump(self._times, file, indent=1)
