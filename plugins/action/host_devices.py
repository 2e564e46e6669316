# SPDX-License-Identifier: Apache-2.0
"""Checks and writes what the role host_devices is given, and applies it now; see plugins/modules/host_devices.py."""

from __future__ import annotations

from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import host_devices
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.declaration import plain

_OWNER = "host_devices"


class ActionModule(ActionBase):
    """Two executions: files, which survive a reboot, then what they would bring about at the next boot.

    None where nothing is wanted of a node that is known to have nothing of it.
    """

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        wanted = plain({name: self._task.args.get(name) or [] for name in ("modules", "udev_rules", "nodes")})
        lines = host_devices.problems(wanted["modules"], wanted["udev_rules"], wanted["nodes"])
        if lines:
            host = (task_vars or {}).get("inventory_hostname", "")
            result.update(failed=True, msg="\n".join(f"{host}: {line}" for line in lines))
            return result
        node = plain(self._task.args.get("node") or {})
        if not any(wanted.values()) and _has_nothing_of_ours(node):
            return {**result, "changed": False, "written": [], "removed": [], "kept": [], "diff": [], "actions": []}
        files = host_devices.files(wanted["modules"], wanted["udev_rules"], wanted["nodes"])
        written = self._execute_module(
            module_name="nodedevices.kubernetes.managed_files",
            module_args={"owner": _OWNER, "files": files},
            task_vars=task_vars,
        )
        if written.get("failed"):
            return written
        before = {diff["before_header"].partition(" (mode")[0]: diff["before"] for diff in written["diff"]}
        applied = self._execute_module(
            module_name="nodedevices.kubernetes.host_devices",
            module_args={
                "modules": [module["name"] for module in wanted["modules"]],
                "nodes": next((file["content"] for file in files if file["path"] == host_devices.NODES), ""),
                "earlier_nodes": before.get(host_devices.NODES, ""),
                "rules_changed": host_devices.RULES in before,
            },
            task_vars=task_vars,
        )
        if applied.get("failed"):
            return applied
        warnings = written.get("warnings", []) + applied.get("warnings", [])
        changed = written["changed"] or applied["changed"]
        return {**written, "changed": changed, "actions": applied["actions"], "warnings": warnings}


def _has_nothing_of_ours(node):
    """Whether the facts of a node have its ledger, whole, and nothing of this role in it."""
    if "ledger" not in node or node.get("ledger_problem"):
        return False
    return not any(_OWNER in (entry.get("owner"), *entry.get("owners", ())) for entry in node["ledger"].values())
