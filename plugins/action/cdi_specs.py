# SPDX-License-Identifier: Apache-2.0
"""Writes a node's CDI specs; see plugins/modules/cdi_specs.py for its documentation."""

from __future__ import annotations

import contextlib
import shlex
import time

from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import plugin_cli, specs, task_arguments

# How long the kubelet may take to notice that the plugin offers a device no more, in seconds.
_TIMEOUT = 5.0
_PAUSE = 0.5
_DEVICE_PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
_CHECKPOINT = "kubelet_internal_checkpoint"


class ActionModule(ActionBase):
    """One module execution; when pruning none where everything is declared, else a question to the node and one."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = task_arguments.of(self)
        node_specs = specs.Specs(arguments.get("declaration") or {}, arguments["node"])
        try:
            if arguments.get("prune"):
                if not node_specs.leftovers:
                    stays = [f"{specs.DIRECTORY}/{name}" for name in node_specs.declared]
                    return {**result, "changed": False, "kept": [], "stays": stays}
                staying = self._staying(node_specs, arguments)
            else:
                if node_specs.redefined() and arguments.get("command"):
                    with contextlib.suppress(plugin_cli.PluginCliMissing):
                        node_specs.refuse_redefined(plugin_cli.holders(self, arguments))
                staying = [specs.Held(leftover, "") for leftover in node_specs.leftovers]
            devices = [held.leftover for held in staying]
            node_specs.check(devices)
        except (specs.SpecsError, plugin_cli.PluginCliError) as error:
            host = (task_vars or {}).get("inventory_hostname", "")
            lines = str(error).splitlines()
            result.update(failed=True, msg="\n".join(f"{host}: {line}" for line in lines))
            return result
        files = [
            {"path": f"{specs.DIRECTORY}/{name}", "content": text, "mode": "0644"}
            for name, text in node_specs.texts(devices).items()
        ]
        module_args = {"owner": "cdi_specs", "files": files}
        if arguments.get("prune") and arguments.get("declaration") and self._task.check_mode:
            # What was to be added has not been.
            module_args["pending"] = {
                f"{specs.DIRECTORY}/{name}": text for name, text in node_specs.texts(node_specs.leftovers).items()
            }
        answer = self._execute_module(
            module_name="nodedevices.kubernetes.managed_files", module_args=module_args, task_vars=task_vars
        )
        answer["stays"] = [file["path"] for file in files]
        devices_kept = [{"device": held.leftover.name, "reason": held.reason} for held in staying if held.reason]
        if devices_kept:
            answer["kept"] = answer.get("kept", []) + devices_kept
            answer["warnings"] = answer.get("warnings", []) + [
                f"kept: {kept['device']}, {kept['reason']}" for kept in devices_kept
            ]
        return answer

    def _staying(self, node_specs, arguments):
        """Ask who holds what; wait a little for devices that the kubelet lists only because it was not told yet."""
        # In check mode the plugin still offers what it would offer no more.
        advertised_counts = not self._task.check_mode
        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                holders = plugin_cli.holders(self, arguments)
            except plugin_cli.PluginCliMissing as error:
                self._refuse_if_a_kubelet_gave_devices(arguments, error)
                return []
            staying, _going = node_specs.split(holders, advertised_counts)
            if all(held.reason.startswith("held") for held in staying) or time.monotonic() > deadline:
                return staying
            time.sleep(_PAUSE)

    def _refuse_if_a_kubelet_gave_devices(self, arguments, missing):
        """Without the command only this can be told: a kubelet that ever gave a device to a pod has a checkpoint."""
        checkpoint = f"{arguments.get('device_plugin_dir') or _DEVICE_PLUGIN_DIR}/{_CHECKPOINT}"
        if self._low_level_execute_command(f"test -e {shlex.quote(checkpoint)}")["rc"] == 0:
            raise plugin_cli.PluginCliError(
                f"{missing}; without it nobody can say whether a pod holds a device of the specs that are to go, and "
                f"{checkpoint} is there, so the kubelet may have given one"
            )
