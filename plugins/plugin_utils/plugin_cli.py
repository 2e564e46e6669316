# SPDX-License-Identifier: Apache-2.0
"""Runs the plugin's command on the node and reads the command's answers."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Mapping
from typing import Any

from . import answer_shapes, answers, framed


class PluginCliError(Exception):
    """The command is missing or failed. The message has the fix or the command's error."""


class PluginCliMissing(PluginCliError):
    """The command is missing."""

    def __init__(self, command: str) -> None:
        super().__init__(f"{command} is not installed on the node: run role node_tools (site.yml) first")


def is_there(action: Any, command: str) -> bool:
    """Return whether the node has the command. Raises PluginCliError."""
    return _run(action, f"test -x {shlex.quote(command)}").code == 0


def ask(action: Any, command: str, *arguments: str) -> dict[str, Any]:
    """Run the plugin's command with JSON output, in check mode too. Raises PluginCliError. action: the caller."""
    return answer(action, [command, *arguments, "-o", "json"])


def holders(action: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pods that hold devices. arguments: the task's ``command`` and optional kubelet and CDI paths."""
    question = ["holders"]
    for option in ("kubelet_root", "device_plugin_dir", "cdi_dir"):
        if arguments.get(option):
            question += ["--" + option.replace("_", "-"), arguments[option]]
    return ask(action, arguments["command"], *question)


def answer(action: Any, command: list[str], given: str = "", task_vars: Any = None) -> dict[str, Any]:
    """Run a command that prints JSON. Raises PluginCliError. given: its input. task_vars: necessary with ``given``."""
    said = _fed(action, command, given, task_vars) if given else _run(action, shlex.join(command))
    if said.code in (126, 127):
        if "/" in command[0]:
            raise PluginCliMissing(command[0])
        raise PluginCliError(f"{command[0]} is not installed on the node: install it")
    if len(said.output) > answers.LONGEST:
        raise PluginCliError(
            f"the answer of node-device-plugin {command[1]} is longer than {answers.LONGEST} characters"
        )
    try:
        data = json.loads(said.output)
    except (RecursionError, ValueError):
        lines = (said.errors.strip() or said.output.strip()).splitlines()
        why = answers.readable(lines[-1] if lines else str(said.code), 2000)
        if "unrecognized arguments" in why:
            raise PluginCliError(
                f"{command[0]} {command[1]} failed: {why}; the node's command is of another release than this "
                "collection: run upgrade.yml, or use the collection of the node's release"
            ) from None
        raise PluginCliError(f"{command[0]} {command[1]} failed: {why}") from None
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


def _fed(action: Any, command: list[str], given: str, task_vars: Any) -> framed.Said:
    """Run a command with input. If the connection supports pipelining, run no module, because a module is slower."""
    if action._connection.is_pipelining_enabled(False):
        # Use cat, because an SSH server may pass input as a socket, which /dev/stdin cannot open.
        return _run(action, "cat | " + shlex.join(command), given.encode())
    said = action._execute_module(
        module_name="ansible.legacy.command",
        module_args={"argv": command, "stdin": given, "_uses_shell": False},
        task_vars=task_vars,
    )
    # If the command did not start, the module's result has no rc.
    return framed.Said(said.get("rc", 127), said.get("stdout", ""), said.get("stderr", said.get("msg", "")))


def _run(action: Any, command: str, given: bytes | None = None) -> framed.Said:
    try:
        return framed.run(action, command, given)
    except framed.NoAnswer as error:
        raise PluginCliError(f"the node runs no command of this play: {error}") from error
