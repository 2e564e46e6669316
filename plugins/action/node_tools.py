# SPDX-License-Identifier: Apache-2.0
"""Gathers the wheels that the node has chosen on the controller, and sends them if the node needs them."""

from __future__ import annotations

import pathlib

from ..plugin_utils import wheels
from ..plugin_utils.node_action import NodeAction

_MODULE = "nodedevices.kubernetes.node_tools"


class ActionModule(NodeAction):
    """Executes its module to check the environment, and again to create an incomplete environment."""

    def act(self, given):
        specs, host_devices = given.pop("specs", None), given.pop("host_devices", None)
        cache = pathlib.Path(given.pop("cache", None) or "~/.cache/node-devices").expanduser()
        wheelhouse = given.pop("wheelhouse", None)
        wheelhouse = pathlib.Path(wheelhouse).expanduser() if wheelhouse else None
        if given.setdefault("state", "present") == "absent":
            return self._remove(given, specs, host_devices)
        if given["state"] == "rolled_back":
            return self._on_node(given)
        self.preflight.look({"requires": ["python"]})
        return self._installed(given, cache, wheelhouse)

    def _installed(self, arguments, cache, wheelhouse):
        # The node chooses the version for its Python.
        arguments.pop("name", None)
        arguments = self.preflight.arguments("node_tools", arguments)
        answer = self.preflight.execute("node_tools", arguments)
        if answer.get("failed") or not answer.get("incomplete"):
            return answer
        target, targets = answer.get("target"), arguments["targets"]
        try:
            if target not in targets:
                raise wheels.WheelsError(f"the node's answer names a target without wheels: {target}")
            gathered = wheels.gather(target, cache, wheelhouse)
            if wheels.targets() != targets:
                raise wheels.WheelsError("the plugin's source changed while its wheel was built: run again")
            arguments["archive"] = self._sent("wheels.tar", wheels.packed(gathered))
            arguments["wheels"] = {wheel.path.name: wheel.sha256 for wheel in gathered}
            return self._execute_with_code(_MODULE, arguments, self._vars)
        except (wheels.WheelsError, OSError) as error:
            return {"failed": True, "msg": str(error)}

    def _remove(self, arguments, specs, host_devices):
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
        return self._on_node(arguments)

    def _on_node(self, arguments):
        return self._execute_module(module_name=_MODULE, module_args=arguments, task_vars=self._vars)
