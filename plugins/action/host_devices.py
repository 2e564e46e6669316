# SPDX-License-Identifier: Apache-2.0
"""Checks what the role host_devices is given, and asks who holds what; see plugins/modules/host_devices.py."""

from __future__ import annotations

import hashlib

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import (
    host_devices,
    plugin_cli,
    specs,
    task_arguments,
)

_OWNER = "host_devices"


class ActionModule(ActionBase):
    """One execution. None where nothing is wanted of a node that is known to have nothing of it."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        host = (task_vars or {}).get("inventory_hostname", "")
        arguments = task_arguments.of(self)
        wanted = {name: arguments.get(name) or [] for name in ("modules", "udev_rules", "nodes")}
        lines = host_devices.problems(wanted["modules"], wanted["udev_rules"], wanted["nodes"])
        if lines:
            result.update(failed=True, msg="\n".join(f"{host}: {line}" for line in lines))
            return result
        node = arguments.get("node") or {}
        ours = _ours(node)
        if not any(wanted.values()) and ours == {}:
            return {**result, "changed": False, "written": [], "removed": [], "kept": [], "diff": [], "actions": []}
        files = host_devices.files(wanted["modules"], wanted["udev_rules"], wanted["nodes"])
        held = []
        if _may_go(ours, files, wanted["nodes"]) and arguments.get("command"):
            try:
                held = _held(plugin_cli.holders(self, arguments), node)
            except plugin_cli.PluginCliMissing:
                # A node without the plugin has given nothing of ours to anybody.
                held = []
            except plugin_cli.PluginCliError as error:
                result.update(failed=True, msg=f"{host}: {error}")
                return result
        return self._execute_module(
            module_name="nodedevices.kubernetes.host_devices",
            module_args={
                "modules": [module["name"] for module in wanted["modules"]],
                "files": {file["path"]: file["lines"] for file in files},
                "held": held,
                "prune": boolean(arguments.get("prune", True)),
                "made": boolean(arguments.get("made", False)),
            },
            task_vars=task_vars,
        )


def _ours(node):
    """The ledger's entries of this role; None where they are not known."""
    if "ledger" not in node or node.get("ledger_problem"):
        return None
    return {
        path: entry
        for path, entry in node["ledger"].items()
        if _OWNER in (entry.get("owner", "").partition(" ")[0], *entry.get("owners", ()))
    }


def _may_go(ours, files, nodes):
    """Whether something of ours may be on the node that is no longer wanted."""
    if ours is None:
        return True
    wanted = {file["path"]: hashlib.sha256(file["content"].encode()).hexdigest() for file in files}
    numbers = {node["path"]: (node["major"], node["minor"]) for node in nodes}
    return any(
        (entry["kind"] == "file" and wanted.get(path) != entry["sha256"])
        or (entry["kind"] == "node" and numbers.get(path) != (entry["major"], entry["minor"]))
        for path, entry in ours.items()
    )


def _held(holders, node):
    """What containers hold. A device counts as ours that nobody else offers, because our plugin may have gone."""
    instance = (node.get("device_plugins") or {}).get("instance") or {"resources": []}
    return [
        {
            "who": f"{specs.holder(held)} as {held['resource']}",
            "paths": held["host_paths"],
            "ours": held["by_our_cdi"]
            or held["resource"] in instance["resources"]
            or held["resource"] not in holders["allocatable"],
        }
        for held in holders["held"]
        if held["host_paths"]
    ]
