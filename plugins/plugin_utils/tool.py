# SPDX-License-Identifier: Apache-2.0
"""The plugin's own command on the node, as the roles ask it questions."""

from __future__ import annotations

import json
import shlex
from typing import Any


class ToolError(Exception):
    """The command is not there, or failed; the message says what to do or what it said."""


class ToolMissing(ToolError):
    """The command is not there."""

    def __init__(self, command: str) -> None:
        super().__init__(f"{command} is not on the node: run the role node_tools first")


def is_there(action: Any, command: str) -> bool:
    """Whether the node has the command."""
    return action._low_level_execute_command(f"test -x {shlex.quote(command)}")["rc"] == 0


def ask(action: Any, command: str, *arguments: str) -> dict[str, Any]:
    """Run a command that changes nothing and answers in JSON, in check mode too.

    action: the action plugin that asks.
    """
    line = " ".join(shlex.quote(word) for word in (command, *arguments, "-o", "json"))
    answer = action._low_level_execute_command(line)
    if answer["rc"] in (126, 127):
        raise ToolMissing(command)
    try:
        return json.loads(answer["stdout"])
    except ValueError:
        said = (answer["stderr"].strip() or answer["stdout"].strip()).splitlines()
        raise ToolError(f"{command} {arguments[0]} failed: {said[-1] if said else answer['rc']}") from None
