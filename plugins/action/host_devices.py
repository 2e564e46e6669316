# SPDX-License-Identifier: Apache-2.0
"""Checks the variables of role host_devices and queries the holders. See plugins/modules/host_devices.py."""

from __future__ import annotations

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import (
    host_devices,
    plugin_cli,
    preflight,
    specs,
    task_arguments,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction


class ActionModule(HidingAction):
    """Executes its module, and again with the holders if something goes that a pod may hold."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        look, arguments = preflight.Preflight(self, task_vars), task_arguments.of(self)
        state = arguments.get("state", "present")
        is_wanted = state != "absent"
        names = ("modules", "udev_rules", "nodes")
        given = {name: arguments[name] for name in names if name in arguments and is_wanted}
        host = (task_vars or {}).get("inventory_hostname", "")
        lines = host_devices.problems(*(given.get(name, []) for name in names))
        if lines:
            return {**result, "failed": True, "msg": "\n".join(f"{host}: {line}" for line in lines)}
        try:
            seen = look.node(arguments.get("node"), ["python", *(["systemd"] if is_wanted else [])])
        except preflight.ERRORS as error:
            return {**result, **look.failed(error)}
        of_module = {**given, "prune": boolean(arguments.get("prune", True))}
        if state == "pruned":
            of_module["made"] = True
        answer = look.execute("host_devices", of_module)
        if answer.get("needs_holders"):
            try:
                held = self._holders(look.kubelet(seen.node, arguments), seen.node)
            except plugin_cli.PluginCliError as error:
                return {**result, "failed": True, "msg": f"{host}: {error}"}
            answer = look.execute("host_devices", {**of_module, "held": held})
        return seen.told({**result, **answer})

    def _holders(self, arguments, node):
        """Return the devices that pods hold. Raises PluginCliError."""
        if not arguments.get("command"):
            return []
        try:
            return _held(plugin_cli.holders(self, arguments), node)
        except plugin_cli.PluginCliMissing as error:
            # A missing command means that the plugin allocated nothing, unless someone deleted the command.
            plugin_cli.refuse_if_a_kubelet_gave_devices(self, arguments, error)
            return []


def _held(holders, node):
    """Return the holders with their host paths.

    A device that no plugin offers counts as ours, because our plugin may have ended. An earlier release's command does
    not report ``all_host_paths``.
    """
    instance = (node.get("device_plugins") or {}).get("instance") or {"resources": []}
    paths = [held.get("all_host_paths", held["host_paths"]) for held in holders["held"]]
    return [
        {
            "who": f"{specs.holder(held)} as {held['resource']}",
            "paths": given,
            "ours": held["by_our_cdi"]
            or held["resource"] in instance["resources"]
            or held["resource"] not in holders["allocatable"],
        }
        for held, given in zip(holders["held"], paths, strict=True)
        if given
    ]
