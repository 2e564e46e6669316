# SPDX-License-Identifier: Apache-2.0
"""Makes the arguments of module cdi_specs from a declaration, for the role's action and for the preflight."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import cdi

#: Options that the action passes to the module.
_PASSED = ("state", "command", "kubelet_root", "device_plugin_dir", "cdi_dir")


def module_arguments(declared: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the module's arguments. declared: the result of module declaration, or None. given: the task's options.

    A removal needs only the places in the declaration.
    """
    declared = declared or {}
    defaults = {
        "state": "present",
        "device_plugin_dir": declared.get("kubelet_device_plugin_dir"),
        "cdi_dir": declared.get("configuration", {}).get("dynamic_cdi_dir"),
    }
    found = {**defaults, **{key: given[key] for key in _PASSED if given.get(key)}}
    arguments: dict[str, Any] = {key: value for key, value in found.items() if value}
    if arguments["state"] != "absent" and "configuration" in declared:
        arguments["configuration"] = declared["configuration"]
        arguments["templates"] = {
            name: spec for name, spec in declared["cdi_specs"].items() if name.startswith(cdi.TEMPLATE_PREFIX)
        }
    return arguments
