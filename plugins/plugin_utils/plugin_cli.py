# SPDX-License-Identifier: Apache-2.0
"""The plugin's own command on the node, as the roles ask it questions."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

_DEVICE_PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
_CHECKPOINT = "kubelet_internal_checkpoint"


class PluginCliError(Exception):
    """The command is not there, or failed; the message says what to do or what it said."""


class PluginCliMissing(PluginCliError):
    """The command is not there."""

    def __init__(self, command: str) -> None:
        super().__init__(f"{command} is not on the node: run the role node_tools first")


def is_there(action: Any, command: str) -> bool:
    """Whether the node has the command."""
    return action._low_level_execute_command(f"test -x {shlex.quote(command)}")["rc"] == 0


def ask(action: Any, command: str, *arguments: str) -> dict[str, Any]:
    """Run the plugin's command, which changes nothing and answers in JSON, in check mode too.

    action: the action plugin that asks.
    """
    return answer(action, [command, *arguments, "-o", "json"])


def holders(action: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Which pod holds which device. arguments: the task's, ``command`` and where the kubelet is, if that is given."""
    question = ["holders"]
    for option in ("kubelet_root", "device_plugin_dir", "cdi_dir"):
        if arguments.get(option):
            question += ["--" + option.replace("_", "-"), arguments[option]]
    return ask(action, arguments["command"], *question)


def refuse_if_a_kubelet_gave_devices(action: Any, arguments: Mapping[str, Any], missing: PluginCliMissing) -> None:
    """Without the command only this can be told: a kubelet that ever gave a device to a pod has a checkpoint.

    Raises PluginCliError where it has.
    """
    checkpoint = f"{arguments.get('device_plugin_dir') or _DEVICE_PLUGIN_DIR}/{_CHECKPOINT}"
    if action._low_level_execute_command(f"test -e {shlex.quote(checkpoint)}")["rc"] == 0:
        raise PluginCliError(
            f"{missing}; without it nobody can say whether a pod holds a device of what is to go, and "
            f"{checkpoint} is there, so the kubelet may have given one"
        )


def answer(action: Any, command: list[str], given: str = "", task_vars: Any = None) -> dict[str, Any]:
    """Run any such command. given: what it reads from its input; with it, task_vars are the task's."""
    said = _fed(action, command, given, task_vars) if given else action._low_level_execute_command(shlex.join(command))
    if said["rc"] in (126, 127):
        if "/" in command[0]:
            raise PluginCliMissing(command[0])
        raise PluginCliError(f"{command[0]} is not on the node: install it")
    try:
        return json.loads(said["stdout"])
    except (RecursionError, ValueError):
        lines = (said["stderr"].strip() or said["stdout"].strip()).splitlines()
        why = lines[-1] if lines else str(said["rc"])
        if "unrecognized arguments" in why:
            why += "; the node has the command of another release: run upgrade.yml, or use that release's collection"
        raise PluginCliError(f"{command[0]} {command[1]} failed: {why}") from None


def _fed(action: Any, command: list[str], given: str, task_vars: Any) -> dict[str, Any]:
    """What a command says of its input.

    No module around it where the connection passes input on, as it does for pipelining: a module's own start costs more
    than the plugin's command.
    """
    if action._connection.is_pipelining_enabled(False):
        # What an SSH server gives as input may be a socket, which /dev/stdin cannot open.
        return action._low_level_execute_command("cat | " + shlex.join(command), in_data=given.encode())
    said = action._execute_module(
        module_name="ansible.legacy.command",
        module_args={"argv": command, "stdin": given, "_uses_shell": False},
        task_vars=task_vars,
    )
    # A command that cannot be started at all has no code.
    return {"rc": 127, "stdout": "", "stderr": said.get("msg", ""), **said}
