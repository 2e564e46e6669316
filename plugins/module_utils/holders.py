# SPDX-License-Identifier: Apache-2.0
"""Asks the plugin's command which pods hold devices.

Runs on nodes: Python 3.9, standard library only.
"""

from __future__ import annotations

import json
import os

_DEVICE_PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
_CHECKPOINT = "kubelet_internal_checkpoint"
#: The parameters of a module that asks for holders.
PARAMS = {name: {"type": "path"} for name in ("command", "kubelet_root", "device_plugin_dir", "cdi_dir")}


class Unanswered(Exception):
    """The command failed. The message has the command's error."""


class CommandMissing(Unanswered):
    """The command is missing."""

    def __init__(self, command):
        super().__init__(f"{command} is not installed on the node: run role node_tools (site.yml) first")


def holders(node, params):
    """Return the answer of ``node-device-plugin holders``. Raises Unanswered. params: as PARAMS."""
    command = [params["command"], "holders", "-o", "json"]
    for name in ("kubelet_root", "device_plugin_dir", "cdi_dir"):
        if params.get(name):
            command += ["--" + name.replace("_", "-"), params[name]]
    try:
        code, output, errors = node.run_command(command)
    except OSError:
        # The command's Python may be missing, too.
        raise CommandMissing(command[0]) from None
    try:
        return json.loads(output)
    except (RecursionError, ValueError):
        lines = (errors.strip() or output.strip() or str(code)).splitlines()
        advice = (
            "; the node's command is of another release than this collection: run upgrade.yml, or use the collection "
            "of the node's release"
            if "unrecognized arguments" in lines[-1]
            else ""
        )
        raise Unanswered(f"{command[0]} holders failed: {lines[-1]}{advice}") from None


def refuse_if_a_kubelet_gave_devices(params, missing):
    """Raise Unanswered if the kubelet's checkpoint exists.

    Without the command, only the checkpoint shows whether the kubelet ever allocated a device. missing: CommandMissing.
    """
    checkpoint = os.path.join(params.get("device_plugin_dir") or _DEVICE_PLUGIN_DIR, _CHECKPOINT)
    if os.path.exists(checkpoint):
        raise Unanswered(
            f"{missing}; without this command, the play cannot tell whether a pod holds a device that would be "
            f"removed, and {checkpoint} exists, so the kubelet may have allocated one"
        )
