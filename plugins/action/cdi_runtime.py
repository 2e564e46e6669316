# SPDX-License-Identifier: Apache-2.0
"""Makes CDI effective in a node's container runtime. See plugins/modules/cdi_runtime.py."""

from __future__ import annotations

from ..plugin_utils import node_code, parallel_restarts, play
from ..plugin_utils.node_action import NodeAction


class ActionModule(NodeAction):
    """Executes the module, which decides on the node. The runtime restarts only in the node's turn."""

    def act(self, given):
        is_wanted = given.get("state", "present") == "present"
        cdi = self.preflight.declaration(given.get("declaration"))["needs_cdi"] if is_wanted else True
        requires = ["python", "systemd", "runtime"] if is_wanted else ["python"]
        self.preflight.look({"requires": requires, "cdi": cdi})
        if not cdi:
            return {"changed": False, "skipped": True, "msg": "no resource uses CDI"}
        arguments = self.preflight.arguments("cdi_runtime", given)
        answer = self._in_turn(arguments, int(given.get("max_parallel_restarts", 1)))
        if answer.get("failed"):
            answer["msg"] = f"{self.host}: {answer['msg']}"
        return answer

    def _in_turn(self, arguments, most):
        """Return the module's answer. If the runtime has to restart, wait for the node's turn first."""
        if self._task.check_mode or not self.preflight.expects("cdi_runtime", arguments, "restarted"):
            answer = self._execute(arguments)
            if self._task.check_mode or answer.get("failed") or not answer.get("restarted"):
                return answer
        with parallel_restarts.at_most(most, play.Renewal(self, self._vars)):
            return self._execute({**arguments, "may_restart": True})

    def _execute(self, arguments):
        answer = self.preflight.execute("cdi_runtime", arguments)
        if not answer.get("other_release"):
            return answer
        # The environment of an earlier release runs this release's source, as an uninstall without an upgrade needs.
        this_release = self._sent("node-device-plugin.zip", node_code.archive(with_wire=True))
        return self.preflight.execute("cdi_runtime", {**arguments, "this_release": this_release})
