# SPDX-License-Identifier: Apache-2.0
"""Reads a host's declaration on the controller; see plugins/modules/declaration.py for its documentation."""

from __future__ import annotations

from collections.abc import Mapping

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration, role_arguments


class ActionModule(ActionBase):
    """Touches no node: needs no connection."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _VALID_ARGS = frozenset(("settings", "roles"))

    def run(self, tmp=None, task_vars=None):
        result = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        template = self._templar.template
        roles = self._task.args.get("roles") or ()
        problems = role_arguments.problems(roles, task_vars, template)
        settings = self._task.args.get("settings")
        api_only = boolean(template(task_vars.get("node_devices_api_only", False)), strict=False)
        if api_only and (settings is None or isinstance(settings, Mapping)):
            # Where only the API reaches, nobody but the plugin can write CDI specs.
            settings = {**(settings or {}), "cdi_owner": "plugin"}
        try:
            read = declaration.read(task_vars, template, settings)
        except declaration.DeclarationProblems as error:
            problems += error.lines
        # What deploys it says the same, long after the first roles have written to the nodes.
        if not problems and "device_plugin" in roles:
            problems += _of_a_daemonset(task_vars, template, read.configuration)
        if problems:
            host = task_vars.get("inventory_hostname", "")
            lines = [f"{host}: {line}" for line in problems]
            result.update(
                failed=True,
                msg="The declaration cannot be used; no node was touched.\n" + "\n".join(lines),
            )
            return result
        result.update(changed=False, **read.as_data())
        return result


def _of_a_daemonset(task_vars, template, configuration):
    if template(task_vars.get("device_plugin_mode")) != "daemonset":
        return []
    # Every role reads the declaration, on every host: only where there is a DaemonSet is there a use for it.
    from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import deployed

    deployment = declaration.plain(template(task_vars.get("device_plugin_deployment"))) or {}
    return deployed.problems(deployment, template(task_vars.get("node_devices_kubeconfig")), configuration)
