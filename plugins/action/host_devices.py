# SPDX-License-Identifier: Apache-2.0
"""Checks the variables of role host_devices and queries the holders. See plugins/modules/host_devices.py."""

from __future__ import annotations

import hashlib

from ansible.module_utils.parsing.convert_bool import boolean
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import (
    host_devices,
    plugin_cli,
    preflight,
    specs,
    task_arguments,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction

_OWNER = "host_devices"


class ActionModule(HidingAction):
    """Executes its module once, or not at all if the node needs no change."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        look, arguments = preflight.Preflight(self, task_vars), task_arguments.of(self)
        state = arguments.get("state", "present")
        is_wanted = state != "absent"
        wanted = {name: (arguments.get(name) or []) if is_wanted else [] for name in ("modules", "udev_rules", "nodes")}
        host = (task_vars or {}).get("inventory_hostname", "")
        lines = host_devices.problems(**wanted)
        if lines:
            return {**result, "failed": True, "msg": "\n".join(f"{host}: {line}" for line in lines)}
        try:
            seen = look.node(arguments.get("node"), ["python", *(["systemd"] if is_wanted else [])])
        except preflight.ERRORS as error:
            return {**result, **look.failed(error)}
        arguments = look.kubelet(seen.node, arguments)
        return seen.told({**result, **self._converged(look, seen.node, state, wanted, arguments, host)})

    def _converged(self, look, node, state, wanted, arguments, host):
        ours, files = _ours(node), host_devices.files(**wanted)
        may_go = _may_go(ours, files, wanted["nodes"])
        if (not any(wanted.values()) and ours == {}) or (state == "pruned" and not may_go):
            return {"changed": False, "written": [], "removed": [], "kept": [], "diff": [], "actions": []}
        held = []
        # In state pruned, the preflight's facts are outdated, because the role has written files since.
        if (may_go or state == "pruned") and arguments.get("command"):
            try:
                try:
                    held = _held(plugin_cli.holders(self, arguments), node)
                except plugin_cli.PluginCliMissing as error:
                    # A missing command means that the plugin allocated nothing, unless someone deleted the command.
                    plugin_cli.refuse_if_a_kubelet_gave_devices(self, arguments, error)
            except plugin_cli.PluginCliError as error:
                return {"failed": True, "msg": f"{host}: {error}"}
        of_module = {
            **host_devices.module_arguments(**wanted),
            "held": held,
            "prune": boolean(arguments.get("prune", True)),
            "made": state == "pruned",
        }
        foreseen = look.foreseen("host_devices", of_module)
        return look.execute("host_devices", {**of_module, "awaited": _awaited(node, wanted)}, foreseen)


def _awaited(node, wanted):
    """Return the missing paths of declared devices that the role may create."""
    missing = [*node.get("missing_devices", ()), *node.get("missing_host_paths", ())]
    return [path for path in missing if host_devices.may_make(path, **wanted)]


def _ours(node):
    """Return the ledger's entries of this role; None if unknown."""
    if "ledger" not in node or node.get("ledger_problem"):
        return None
    return {
        path: entry
        for path, entry in node["ledger"].items()
        if _OWNER in (entry.get("owner", "").partition(" ")[0], *entry.get("owners", ()))
    }


def _may_go(ours, files, nodes):
    """Return whether the node may have unwanted files or device nodes of ours."""
    if ours is None:
        return True
    wanted = {file["path"]: hashlib.sha256(file["content"]).hexdigest() for file in files}
    numbers = {node["path"]: (node["major"], node["minor"]) for node in nodes}
    return any(
        (entry["kind"] == "file" and wanted.get(path) != entry["sha256"])
        or (entry["kind"] == "node" and numbers.get(path) != (entry["major"], entry["minor"]))
        for path, entry in ours.items()
    )


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
