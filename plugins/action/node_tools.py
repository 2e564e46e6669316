# SPDX-License-Identifier: Apache-2.0
"""Gathers the wheels of a node's environment on the controller, and sends them if the node needs them."""

from __future__ import annotations

import os
import pathlib
import re

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight, wheels
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.vaulted import HidingAction

_MODULE = "nodedevices.kubernetes.node_tools"
# The number of platform tags of a node's wheels is its minor version of glibc.
_GLIBC = re.compile(r"glibc ([0-9]{1,2})\.([0-9]{1,3})(\.[0-9]+)*")


def target_of(node: dict) -> wheels.Target:
    """Return the target of the node's wheels. node: the facts of node_preflight. Raises WheelsError."""
    if not node["libc"].startswith("glibc "):
        raise wheels.WheelsError(
            f"the node's C library is {node['libc'] or 'not glibc'}, but the plugin's wheels need glibc: use a "
            "distribution with glibc"
        )
    version, python = _GLIBC.fullmatch(node["libc"]), tuple(node["python"]["version"][:2])
    if not version or len(python) != 2:
        raise wheels.WheelsError(
            f"the node says that its C library is {node['libc'][:60]!r} and its Python {node['python']['version']}, "
            "which are no versions: check what the node's Python is (ansible_python_interpreter)"
        )
    return wheels.Target(python, node["machine"], (int(version[1]), int(version[2])))


class ActionModule(HidingAction):
    """Executes its module to check the environment, and again to create an incomplete environment."""

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        arguments = {key: value for key, value in self._task.args.items() if value is not None}
        node = arguments.pop("node", None)
        specs, host_devices = arguments.pop("specs", None), arguments.pop("host_devices", None)
        cache = pathlib.Path(arguments.pop("cache", None) or "~/.cache/node-devices").expanduser()
        wheelhouse = arguments.pop("wheelhouse", None)
        wheelhouse = pathlib.Path(wheelhouse).expanduser() if wheelhouse else None
        if arguments.setdefault("state", "present") == "absent":
            return self._remove(arguments, specs, host_devices, task_vars)
        if arguments["state"] == "rolled_back":
            return self._on_node(arguments, task_vars)
        look = preflight.Preflight(self, task_vars)
        try:
            seen = look.node(node, ["python"])
        except preflight.ERRORS as error:
            return {**result, **look.failed(error)}
        return seen.told({**result, **self._installed(look, seen.node, arguments, cache, wheelhouse, task_vars)})

    def _installed(self, look, node, arguments, cache, wheelhouse, task_vars):
        # The preflight asks before it knows the name, so the node answers for the current environment.
        predicted = look.predicted("node_tools", arguments)
        try:
            target = target_of(node)
            arguments["name"] = wheels.environment_name(target)
            if predicted and os.path.basename(predicted["environment"]) == arguments["name"]:
                return predicted
            answer = look.execute("node_tools", arguments)
            if answer.get("failed") or not answer.get("incomplete"):
                return answer
            gathered = wheels.gather(target, cache, wheelhouse)
            if wheels.environment_name(target) != arguments["name"]:
                raise wheels.WheelsError("the plugin's source changed while its wheel was built: run again")
            archive = wheels.pack(arguments["name"], gathered, cache)
        except (wheels.WheelsError, OSError) as error:
            return {"failed": True, "msg": str(error)}
        self._make_tmp_path()
        on_node = self._connection._shell.join_path(self._connection._shell.tmpdir, "wheels.tar")
        self._transfer_file(os.fspath(archive), on_node)
        self._fixup_perms2((self._connection._shell.tmpdir, on_node))
        arguments.update(archive=on_node, wheels={wheel.path.name: wheel.sha256 for wheel in gathered})
        return self._on_node(arguments, task_vars)

    def _remove(self, arguments, specs, host_devices, task_vars):
        specs = specs or {}
        dynamic = specs.get("dynamic")
        if dynamic or (self._task.check_mode and "stays" in specs):
            # The ledger does not show this: in check mode it still has the entries that a real run would have removed,
            # and it never has entries for the plugin's files.
            kept = (host_devices or {}).get("kept")
            left = {
                "cdi_runtime": specs.get("cdi_kept"),
                "cdi_specs": specs["stays"],
                "device_plugin": dynamic,
                "host_devices": kept,
            }
            arguments["left"] = [role for role, stays in left.items() if stays]
        return self._on_node(arguments, task_vars)

    def _on_node(self, arguments, task_vars):
        return self._execute_module(module_name=_MODULE, module_args=arguments, task_vars=task_vars)
