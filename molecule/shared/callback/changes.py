# SPDX-License-Identifier: Apache-2.0
"""Writes the changed hosts of each task with their diffs, so that a scenario can compare check mode with the run."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: changes
type: notification
short_description: Writes which tasks changed which hosts
description:
  - Into the folder that the environment variable E(NODE_DEVICES_CHANGES) names, in a file named as the playbook, ending
    in C(.check) or C(.run). Verification is left out, which a check cannot foretell.
  - With C(--diff), the differences that the tasks show go into another file, one in a line. Its name ends in C(.diffs)
    after that.
"""


class CallbackModule(CallbackBase):
    """Collects the changes while the playbook runs, and writes them at its end."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "changes"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._lines: set[str] = set()
        self._diffs: list[str] = []
        self._name = ""
        self._check = False

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._name = Path(playbook._file_name).stem

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._check = bool(play.check_mode)

    def v2_runner_on_ok(self, result: Any) -> None:
        if result._result.get("changed") and "verify" not in result._task.tags:
            self._lines.add(f"{result._host.get_name()}: {result._task.get_name()}")

    def v2_on_file_diff(self, result: Any) -> None:
        if "verify" in result._task.tags:
            return
        told = result._result.get("diff") or []
        for diff in told if isinstance(told, list) else [told]:
            lines = list(_lines_of(diff))
            if lines:
                self._diffs.append(f"{result._host.get_name()}: {result._task.get_name()}: {' | '.join(lines)}")

    def v2_playbook_on_stats(self, stats: Any) -> None:
        directory = Path(os.environ["NODE_DEVICES_CHANGES"])
        directory.mkdir(parents=True, exist_ok=True)
        name = f"{self._name}.{'check' if self._check else 'run'}"
        (directory / name).write_text("\n".join(sorted(self._lines)))
        (directory / f"{name}.diffs").write_text("\n".join(sorted(self._diffs)))


def _lines_of(diff: Any) -> Iterator[str]:
    """Return the changed lines of a diff; empty without a difference."""
    if "prepared" in diff:
        yield from str(diff["prepared"]).splitlines()
    if diff.get("before") == diff.get("after"):
        return
    for name in ("before_header", "after_header"):
        yield str(diff.get(name, ""))
    before, after = (text if isinstance(text, str) else repr(text) for text in (diff.get("before"), diff.get("after")))
    for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0):
        if not line.startswith(("---", "+++", "@@")):
            yield line
