# SPDX-License-Identifier: Apache-2.0
"""Gathers a node's facts for its own declaration. See plugins/modules/node_facts.py."""

from __future__ import annotations

from ...plugin.node_device_plugin.support import answers
from ..plugin_utils import gathered_facts
from ..plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Executes Ansible's module setup, and returns only the facts that a node may set."""

    gives_facts = True

    def act(self, given):
        answer = self._execute_module(module_name="ansible.legacy.setup", module_args={}, task_vars=self._vars)
        if answer.get("failed"):
            return answer
        facts, refused = gathered_facts.selected(answer.get("ansible_facts") or {}, self._vars)
        result = {"changed": False, "ansible_facts": facts}
        if refused:
            result["warnings"] = [f"{self.host}: {each}" for each in refused[: answers.MOST_WARNINGS]]
        return result
