# SPDX-License-Identifier: Apache-2.0
"""Renders files of the role device_plugin as the role does, for actions in plays without the role."""

from __future__ import annotations

import pathlib
from collections.abc import Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import configuration_file

from . import declaration, spec_templates

_ROLE = pathlib.Path(__file__).resolve().parents[2] / "roles" / "device_plugin"
#: The configuration of the plugin's service.
CONFIGURATION = configuration_file.DEFAULT_PATH


def service(action: Any, task_vars: Mapping[str, Any], declared: Mapping[str, Any]) -> dict[str, str]:
    """Return the service's configuration and unit, by path. declared: the result of module declaration.

    Raises any exception of an expression.
    """
    defaults, variables = (
        action._loader.load_from_file(str(_ROLE / part / "main.yml"), trusted_as_template=True)
        for part in ("defaults", "vars")
    )
    known = {**defaults, **task_vars, **variables, "device_plugin_node": {"declaration": declared}}
    templar = action._templar.copy_with_new_env(available_variables=known)
    unit = spec_templates.renderer(action, known)(str(_ROLE / "templates" / "node-device-plugin.service.j2"))
    return {
        CONFIGURATION: configuration_file.text(declared["configuration"]),
        str(templar.template(variables["device_plugin_unit"])): unit,
    }


def value(action: Any, task_vars: Mapping[str, Any], name: str) -> Any:
    """Return the value of a host's variable as plain data; None if it is not set."""
    return declaration.plain(action._templar.template(task_vars[name])) if name in task_vars else None
