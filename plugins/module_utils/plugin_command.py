# SPDX-License-Identifier: Apache-2.0
"""Runs the plugin's command on the node, and reads its answers."""

from __future__ import annotations

import json
import os

from .ledger import LedgerConflict

_DEVICE_PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
_CHECKPOINT = "kubelet_internal_checkpoint"
#: The keys of a held device that modules read.
_HELD = ("resource", "device", "pod", "all_host_paths", "by_our_cdi")
#: The parameters of a module that asks for holders.
PARAMS = {name: {"type": "path"} for name in ("command", "kubelet_root", "device_plugin_dir", "cdi_dir")}


class CommandError(LedgerConflict):
    """The command failed, or its answer has a wrong form. The message has the command's error."""


class CommandMissing(CommandError):
    """The command is missing."""

    def __init__(self, command):
        super().__init__(f"{command} is not installed on the node: run role node_tools (site.yml) first")


class OtherRelease(CommandError):
    """The command does not know an option of this release."""


def ask(node, command, *arguments):
    """Return the answer of a command that answers in JSON. Raises CommandError. node: a node.Node. command: a list."""
    try:
        code, output, errors = node.run_command([*command, *arguments])
    except OSError:
        # The command's Python may be missing, too.
        raise CommandMissing(command[0]) from None
    return parsed(f"{command[0]} {arguments[0]}", code, output, errors)


def parsed(command, code, output, errors):
    """Return a command's output in JSON as data. Raises CommandError with the last line of any other output."""
    try:
        return json.loads(output)
    except (RecursionError, ValueError):
        lines = (errors.strip() or output.strip() or str(code)).splitlines()
    problem = f"{command} failed: {lines[-1]}"
    if "unrecognized arguments" not in lines[-1]:
        raise CommandError(problem)
    raise OtherRelease(
        f"{problem}; the node's command is of another release than this collection: run upgrade.yml, or use the "
        "collection of the node's release"
    )


def runtime_question(command, socket):
    """Return the command that asks the running container runtime, and answers in JSON."""
    return [command, "runtime", "--socket", socket, "-o", "json"]


def holders_question(command, places):
    """Return the command that lists the pods that hold devices, and answers in JSON. places: as PARAMS."""
    options = []
    for name in ("kubelet_root", "device_plugin_dir", "cdi_dir"):
        options += ["--" + name.replace("_", "-"), places[name]] if places.get(name) else []
    return [command, "holders", *options, "-o", "json"]


def runtime(node, command, socket):
    """Return the running container runtime's answer. Raises CommandError."""
    answer = ask(node, [command], *runtime_question(command, socket)[1:])
    if not _has(answer, "cdi") or not _has(answer["cdi"], "enabled", "spec_dirs"):
        # Another release's command may report fewer keys.
        raise CommandError(f"the answer of {command} runtime has no CDI settings: run upgrade.yml")
    return answer


def holders(node, params):
    """Return the answer of ``node-device-plugin holders``. Raises CommandError. params: as PARAMS.

    The answer is empty without ``command``, or if the command is missing and the kubelet never allocated a device.
    """
    nothing = {"held": [], "allocatable": {}}
    if not params["command"]:
        return nothing
    places = {name: params.get(name) or node.facts.get(name) for name in PARAMS}
    try:
        answer = ask(node, [params["command"]], *holders_question(params["command"], places)[1:])
    except CommandMissing as missing:
        # Without the command, only the checkpoint shows whether the kubelet ever allocated a device.
        checkpoint = os.path.join(params.get("device_plugin_dir") or _DEVICE_PLUGIN_DIR, _CHECKPOINT)
        if not os.path.exists(checkpoint):
            return nothing
        missing.args = (
            f"{missing}; without this command, the play cannot tell whether a pod holds a device that would be "
            f"removed, and {checkpoint} exists, so the kubelet may have allocated one",
        )
        raise
    if not _has(answer, *nothing) or not all(_has(held, *_HELD) for held in answer["held"]):
        raise CommandError(f"the answer of {params['command']} holders has a wrong form: run upgrade.yml")
    return answer


def _has(found, *keys):
    return isinstance(found, dict) and set(keys) <= set(found)
