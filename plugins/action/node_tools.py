# SPDX-License-Identifier: Apache-2.0
"""Gathers the wheels that the node has chosen on the controller, and sends them if the node needs them."""

from __future__ import annotations

import pathlib

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight, wheels
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction

_MODULE = "nodedevices.kubernetes.node_tools"


class ActionModule(HidingAction):
    """Executes its module to check the environment, and again to create an incomplete environment."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = {key: value for key, value in self._task.args.items() if value is not None}
        node = arguments.pop("node", None)
        specs, host_devices = arguments.pop("specs", None), arguments.pop("host_devices", None)
        cache = pathlib.Path(arguments.pop("cache", None) or "~/.cache/node-devices").expanduser()
        wheelhouse = arguments.pop("wheelhouse", None)
        wheelhouse = pathlib.Path(wheelhouse).expanduser() if wheelhouse else None
        if arguments.setdefault("state", "present") == "absent":
            return self._remove(arguments, specs, host_devices, task_vars)
        if arguments["state"] == "rolled_back":
            return self._on_node(arguments, task_vars)
        look = preflight.Preflight(self, task_vars)
        try:
            seen = look.node(node, ["python"])
        except preflight.ERRORS as error:
            return {**result, **look.failed(error)}
        return seen.told({**result, **self._installed(look, arguments, cache, wheelhouse, task_vars)})

    def _installed(self, look, arguments, cache, wheelhouse, task_vars):
        # The node chooses the version for its Python.
        arguments.pop("name", None)
        try:
            targets = wheels.targets_of_run()
            arguments["targets"] = targets
            answer = look.execute("node_tools", arguments)
            if answer.get("failed") or not answer.get("incomplete"):
                return answer
            target = answer.get("target")
            if target not in targets:
                raise wheels.WheelsError(f"the node's answer names a target without wheels: {target}")
            gathered = wheels.gather(target, cache, wheelhouse)
            if wheels.targets() != targets:
                raise wheels.WheelsError("the plugin's source changed while its wheel was built: run again")
            archive = wheels.pack(targets[target]["environment"], gathered, cache)
            arguments["archive"] = self._sent("wheels.tar", archive.read_bytes())
            arguments["wheels"] = {wheel.path.name: wheel.sha256 for wheel in gathered}
            return self._execute_with_code(_MODULE, arguments, task_vars)
        except (wheels.WheelsError, OSError) as error:
            return {"failed": True, "msg": str(error)}

    def _remove(self, arguments, specs, host_devices, task_vars):
        specs = specs or {}
        dynamic = specs.get("dynamic")
        if dynamic or (self._task.check_mode and "stays" in specs):
            # The ledger does not show this: in check mode it still has the entries that a real run would have removed,
            # and it never has entries for the plugin's files.
            kept = (host_devices or {}).get("kept")
            left = {
                "cdi_runtime": specs.get("cdi_kept"),
                "cdi_specs": specs["stays"],
                "device_plugin": dynamic,
                "host_devices": kept,
            }
            arguments["left"] = [role for role, stays in left.items() if stays]
        return self._on_node(arguments, task_vars)

    def _on_node(self, arguments, task_vars):
        return self._execute_module(module_name=_MODULE, module_args=arguments, task_vars=task_vars)
