# SPDX-License-Identifier: Apache-2.0
"""Makes CDI effective in a node's container runtime. See plugins/modules/cdi_runtime.py."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import (
    declaration,
    node_code,
    parallel_restarts,
    play,
    preflight,
    task_arguments,
    wheels,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction


class ActionModule(HidingAction):
    """Executes the module, which decides on the node. The runtime restarts only in the node's turn."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        look, given = preflight.Preflight(self, task_vars), task_arguments.of(self)
        is_wanted = given.get("state", "present") == "present"
        try:
            cdi = look.declaration(given.get("declaration"))["needs_cdi"] if is_wanted else True
            seen = look.node(given.get("node"), ["python", "systemd", "runtime"] if is_wanted else ["python"], cdi=cdi)
        except preflight.ERRORS as error:
            return {**result, **look.failed(error)}
        if not cdi:
            return seen.told({**result, "changed": False, "skipped": True, "msg": "no resource uses CDI"})
        renewal = play.Renewal(self, task_vars or {})
        try:
            answer = self._in_turn(look, _arguments(look, given), int(given.get("max_parallel_restarts", 1)), renewal)
        except wheels.WheelsError as error:
            answer = {"failed": True, "msg": str(error)}
        if answer.get("failed"):
            answer["msg"] = f"{look.host}: {answer['msg']}"
        return seen.told({**result, **answer})

    def _in_turn(self, look, arguments, most, renewal):
        """Return the module's answer. If the runtime has to restart, wait for the node's turn first."""
        if self._task.check_mode or not look.expects("cdi_runtime", arguments, "restarted"):
            answer = self._execute(look, arguments)
            if self._task.check_mode or answer.get("failed") or not answer.get("restarted"):
                return answer
        with parallel_restarts.at_most(most, renewal):
            return self._execute(look, {**arguments, "may_restart": True})

    def _execute(self, look, arguments):
        answer = look.execute("cdi_runtime", arguments)
        if not answer.get("other_release"):
            return answer
        # The environment of an earlier release runs this release's source, as an uninstall without an upgrade needs.
        this_release = self._sent("node-device-plugin.zip", node_code.archive(with_wire=True))
        return look.execute("cdi_runtime", {**arguments, "this_release": this_release})


def _arguments(look, given):
    """Return the module's arguments. The preflight's arguments lack the optional ones."""
    state = given.get("state", "present")
    arguments = {
        "state": state,
        "command": given["command"],
        "specs": given.get("specs"),
        "cri_socket": look.variable("node_devices_cri_socket"),
    }
    if state == "absent":
        settings = look.variable(declaration.SETTINGS, {})
        arguments["device_plugin_dir"] = settings.get("kubelet_device_plugin_dir")
    return {name: value for name, value in arguments.items() if value}
