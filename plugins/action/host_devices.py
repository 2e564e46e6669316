# SPDX-License-Identifier: Apache-2.0
"""Checks the variables of role host_devices. See plugins/modules/host_devices.py."""

from __future__ import annotations

from ..plugin_utils import host_devices, preflight
from ..plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Executes its module at most once."""

    def act(self, given):
        is_wanted = given.get("state", "present") != "absent"
        makers = {name: given.get(name, []) for name in host_devices.MAKERS}
        lines = host_devices.problems(**makers) if is_wanted else []
        if lines:
            return {"failed": True, "msg": "\n".join(f"{self.host}: {line}" for line in lines)}
        node = self.preflight.look({"requires": ["python", *(["systemd"] if is_wanted else [])]})
        arguments = self.preflight.arguments("host_devices", given)
        missing = [*node.get("missing_devices", ()), *node.get("missing_host_paths", ())]
        awaited = [path for path in missing if host_devices.may_make(path, **makers)]
        facts = {**preflight.facts_of_module(node), "awaited": awaited}
        answer = self.preflight.execute("host_devices", arguments, facts)
        if answer.get("in_use"):
            answer["msg"] = f"{self.host}: {answer['msg']}"
        return answer
