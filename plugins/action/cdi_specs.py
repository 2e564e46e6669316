# SPDX-License-Identifier: Apache-2.0
"""Writes a node's CDI specs. See plugins/modules/cdi_specs.py."""

from __future__ import annotations

import json

from ..plugin_utils import plugin_cli, preflight
from ..plugin_utils.node_action import NodeAction

_REQUIRES = {"present": ["python", "runtime", "devices"], "pruned": ["python", "runtime"], "absent": ["python"]}
# Keys of the module's answer that are in the task's result.
_KEYS = ("changed", "failed", "msg", "written", "contents", "removed", "kept", "diff", "warnings", "traceback")


class ActionModule(NodeAction):
    """Executes its module at most once."""

    def act(self, given):
        state = given.get("state", "present")
        declared = self.preflight.declaration(given.get("declaration"))
        # Do not check the declaration for a removal.
        checked = declared if state != "absent" else None
        node = self.preflight.look({"requires": _REQUIRES[state], "declaration": checked})
        arguments = self.preflight.arguments("cdi_specs", given, declared)
        answer = self.preflight.execute("cdi_specs", arguments, facts=preflight.facts_of_module(node))
        # An answer with all its keys fails because of problems of the specs.
        if answer.get("failed") and "files" in answer:
            answer["msg"] = "\n".join(f"{self.host}: {line}" for line in answer["msg"].splitlines())
        return _result(answer, _dynamic(given))


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


def _result(answer, dynamic):
    """Return the task's result from the module's answer, with the devices that stay in the plugin's specs."""
    result = {key: answer[key] for key in _KEYS if key in answer}
    result["stays"] = list(answer.get("files", ()))
    result["dynamic"] = [kept["device"] for kept in dynamic]
    devices_kept = [*dynamic, *answer.get("devices", ())]
    if devices_kept:
        result["kept"] = result.get("kept", []) + devices_kept
        result["warnings"] = result.get("warnings", []) + [
            f"kept: {kept['device']}, {kept['reason']}" for kept in devices_kept
        ]
    return result
