# SPDX-License-Identifier: Apache-2.0
"""Asks the plugin's command which pods hold devices. Runs on nodes: Python 3.9, standard library only."""

from __future__ import annotations

import os

from ansible_collections.nodedevices.kubernetes.plugins.module_utils import plugin_command

_DEVICE_PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
_CHECKPOINT = "kubelet_internal_checkpoint"
#: The parameters of a module that asks for holders.
PARAMS = {name: {"type": "path"} for name in ("command", "kubelet_root", "device_plugin_dir", "cdi_dir")}


def holders(node, params):
    """Return the answer of ``node-device-plugin holders``. Raises CommandError. params: as PARAMS."""
    options = []
    for name in ("kubelet_root", "device_plugin_dir", "cdi_dir"):
        if params.get(name):
            options += ["--" + name.replace("_", "-"), params[name]]
    return plugin_command.ask(node, [params["command"]], "holders", *options, "-o", "json")


def refuse_if_a_kubelet_gave_devices(params, missing):
    """Raise CommandError if the kubelet's checkpoint exists.

    Without the command, only the checkpoint shows whether the kubelet ever allocated a device. missing: CommandMissing.
    """
    checkpoint = os.path.join(params.get("device_plugin_dir") or _DEVICE_PLUGIN_DIR, _CHECKPOINT)
    if os.path.exists(checkpoint):
        raise plugin_command.CommandError(
            f"{missing}; without this command, the play cannot tell whether a pod holds a device that would be "
            f"removed, and {checkpoint} exists, so the kubelet may have allocated one"
        )
