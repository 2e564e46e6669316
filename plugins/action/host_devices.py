# SPDX-License-Identifier: Apache-2.0
"""Checks the variables of role host_devices. See plugins/modules/host_devices.py."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import (
    declaration,
    host_devices,
    preflight,
    task_arguments,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction


class ActionModule(HidingAction):
    """Executes its module at most once."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        look, arguments = preflight.Preflight(self, task_vars), task_arguments.of(self)
        is_wanted = arguments.get("state", "present") != "absent"
        makers = {name: arguments.get(name, []) for name in host_devices.MAKERS}
        lines = host_devices.problems(**makers) if is_wanted else []
        if lines:
            return {**result, "failed": True, "msg": "\n".join(f"{look.host}: {line}" for line in lines)}
        try:
            seen = look.node(arguments.get("node"), ["python", *(["systemd"] if is_wanted else [])])
        except preflight.ERRORS as error:
            return {**result, **look.failed(error)}
        given = host_devices.module_arguments(arguments, look.variable(declaration.SETTINGS, {}))
        missing = [*seen.node.get("missing_devices", ()), *seen.node.get("missing_host_paths", ())]
        awaited = [path for path in missing if host_devices.may_make(path, **makers)]
        answer = look.execute("host_devices", given, facts={**seen.facts, "awaited": awaited})
        if answer.get("in_use"):
            answer["msg"] = f"{look.host}: {answer['msg']}"
        return seen.told({**result, **answer})
