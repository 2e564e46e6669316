# SPDX-License-Identifier: Apache-2.0
"""Runs the plugin's command on the node and reads the command's answers."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Mapping
from typing import Any

from ...plugin.node_device_plugin.declaration import device_plugin_api
from ...plugin.node_device_plugin.support import answers
from ..module_utils import plugin_command
from . import answer_shapes, framed

PluginCliError, PluginCliMissing = plugin_command.CommandError, plugin_command.CommandMissing


def require(action: Any, command: str) -> None:
    """Raise PluginCliError if the node does not have the command."""
    if _run(action, f"test -x {shlex.quote(command)}").code:
        raise PluginCliMissing(command)


def holders(action: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pods that hold devices, with the devices' ids.

    arguments: the task's ``command`` and optional kubelet and CDI paths.
    """
    told = answer(action, plugin_command.holders_question(arguments["command"], arguments))
    return device_plugin_api.with_device_ids(told)


def answer(action: Any, command: list[str], given: str = "") -> dict[str, Any]:
    """Run a command that prints JSON, in check mode too. Raises PluginCliError. given: the command's input."""
    said = _fed(action, command, given.encode()) if given else _run(action, shlex.join(command))
    if said.code in (126, 127):
        if "/" in command[0]:
            raise PluginCliMissing(command[0])
        raise PluginCliError(f"{command[0]} is not installed on the node: install it")
    if len(said.output) > answers.LONGEST:
        raise PluginCliError(
            f"the answer of node-device-plugin {command[1]} is longer than {answers.LONGEST} characters"
        )
    try:
        data = plugin_command.parsed(f"{command[0]} {command[1]}", *said)
    except PluginCliError as error:
        raise PluginCliError(answers.readable(str(error), 2000)) from None
    # An interpreter's words may come before the command's.
    pairs = map(" ".join, itertools.pairwise(command))
    return checked(next(words for words in (*pairs, *command) if words in answer_shapes.COMMANDS), data)


def checked(words: str, data: Any) -> dict[str, Any]:
    """Return the answer of one of the plugin's commands if it has its shape, or raise PluginCliError."""
    try:
        found: dict[str, Any] = answers.shaped(answer_shapes.COMMANDS[words], data)
    except (answers.AnswerError, RecursionError) as error:
        raise PluginCliError(f"the answer of node-device-plugin {words} has a wrong form: {error}") from None
    return found


def _fed(action: Any, command: list[str], given: bytes) -> framed.Said:
    """Run a command with input. Send the input as a file if the connection does not support pipelining."""
    if action._connection.is_pipelining_enabled(False):
        # Use cat, because an SSH server may pass input as a socket, which /dev/stdin cannot open.
        return _run(action, "cat | " + shlex.join(command), given)
    return _run(action, f"cat {shlex.quote(action._sent('input', given))} | {shlex.join(command)}")


def _run(action: Any, command: str, given: bytes | None = None) -> framed.Said:
    try:
        return framed.run(action, command, given)
    except framed.NoAnswer as error:
        raise PluginCliError(f"the node runs no command of this play: {error}") from error
