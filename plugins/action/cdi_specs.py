# SPDX-License-Identifier: Apache-2.0
"""Writes a node's CDI specs. See plugins/modules/cdi_specs.py."""

from __future__ import annotations

import contextlib
import json
import time

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import (
    planned_files,
    plugin_cli,
    preflight,
    specs,
    task_arguments,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction

# Seconds that the kubelet may take to notice that the plugin no longer offers a device.
_TIMEOUT = 5.0
_PAUSE = 0.5
_REQUIRES = {"present": ["python", "runtime", "devices"], "pruned": ["python", "runtime"], "absent": ["python"]}


class ActionModule(HidingAction):
    """Executes at most one module. Before it removes leftover specs, it queries the holders."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        look, arguments = preflight.Preflight(self, task_vars), task_arguments.of(self)
        state = arguments.get("state", "present")
        try:
            read = look.declaration(arguments.get("declaration"))
            # Do not check the declaration for a removal.
            checked = read if state != "absent" else None
            seen = look.node(arguments.get("node"), _REQUIRES[state], declaration=checked)
            declared = look.with_numbers(checked, seen) if checked else {}
        except preflight.ERRORS as error:
            return {**result, **look.failed(error)}
        places = {"device_plugin_dir": read.get("kubelet_device_plugin_dir")}
        arguments = look.kubelet(seen.node, {**places, **arguments})
        return seen.told({**result, **self._converged(look, declared, seen.node, state != "present", arguments)})

    def _converged(self, look, declared, node, prune, arguments):
        node_specs, dynamic = specs.Specs(declared, node), _dynamic(arguments)
        try:
            if prune:
                if not node_specs.leftovers:
                    stays = [f"{specs.DIRECTORY}/{name}" for name in node_specs.declared]
                    return _with_kept({"changed": False, "kept": [], "stays": stays}, dynamic, [])
                staying = self._staying(node_specs, arguments)
            else:
                if node_specs.redefined() and arguments.get("command"):
                    with contextlib.suppress(plugin_cli.PluginCliMissing):
                        node_specs.refuse_redefined(plugin_cli.holders(self, arguments))
                staying = [specs.Held(leftover, "") for leftover in node_specs.leftovers]
            devices = [held.leftover for held in staying]
            node_specs.check(devices)
        except (specs.SpecsError, plugin_cli.PluginCliError) as error:
            lines = str(error).splitlines()
            return {"failed": True, "msg": "\n".join(f"{look.host}: {line}" for line in lines)}
        files = [
            {"path": f"{specs.DIRECTORY}/{name}", "content": text} for name, text in node_specs.texts(devices).items()
        ]
        module_args = {"owner": "cdi_specs", "files": files}
        if prune and declared and self._task.check_mode:
            # Pass the specs that a real run would have written before.
            module_args["pending"] = {
                f"{specs.DIRECTORY}/{name}": text for name, text in node_specs.texts(node_specs.leftovers).items()
            }
        answer = planned_files.converge(look, node, module_args)
        answer["stays"] = [file["path"] for file in files]
        devices_kept = [{"device": held.leftover.name, "reason": held.reason} for held in staying if held.reason]
        return _with_kept(answer, dynamic, devices_kept)

    def _staying(self, node_specs, arguments):
        """Return the leftovers that stay. Wait briefly until the kubelet notices that the plugin withdrew devices."""
        # In check mode, the plugin still offers the devices that a real run would withdraw.
        advertised_counts = not self._task.check_mode
        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                holders = plugin_cli.holders(self, arguments)
            except plugin_cli.PluginCliMissing as error:
                plugin_cli.refuse_if_a_kubelet_gave_devices(self, arguments, error)
                return []
            staying, _going = node_specs.split(holders, advertised_counts)
            if all(held.reason.startswith("held") for held in staying) or time.monotonic() > deadline:
                return staying
            time.sleep(_PAUSE)


def _dynamic(arguments):
    """Return the devices that stay in the plugin's specs, with reasons; empty if the plugin did not answer."""
    try:
        said = json.loads((arguments.get("pruned") or {}).get("stdout") or "{}")
        answer = plugin_cli.checked("cdi prune", said)
    except (RecursionError, ValueError, plugin_cli.PluginCliError):
        return []
    # An earlier release's command does not report the holders.
    who = answer.get("holders") or dict.fromkeys(answer.get("kept", ()), "a pod")
    return [{"device": name, "reason": f"held by {pod}"} for name, pod in who.items()]


def _with_kept(answer, dynamic, devices_kept):
    """Add the devices that stay in the plugin's and the role's specs to the result."""
    answer["dynamic"] = [kept["device"] for kept in dynamic]
    devices_kept = [*dynamic, *devices_kept]
    if devices_kept:
        answer["kept"] = answer.get("kept", []) + devices_kept
        answer["warnings"] = answer.get("warnings", []) + [
            f"kept: {kept['device']}, {kept['reason']}" for kept in devices_kept
        ]
    return answer
