# SPDX-License-Identifier: Apache-2.0
"""Completes the arguments of a role's module, for the role's action and for the preflight.

The play uses the preflight's answer only if both arguments are the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import cdi

from . import host_devices, wheels

# Options that only the action reads.
_OF_ACTION = frozenset(("declaration", "pruned", "max_parallel_restarts"))


def places(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the paths with which the plugin's command lists the pods that hold devices. settings: of the plugin."""
    return {"device_plugin_dir": settings.get("kubelet_device_plugin_dir"), "cdi_dir": settings.get("dynamic_cdi_dir")}


def completed(
    module: str,
    given: Mapping[str, Any],
    declared: Mapping[str, Any] | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    cri_socket: str | None = None,
) -> dict[str, Any]:
    """Return the arguments with which the node executes a module.

    given: the task's options. declared: the result of module declaration, or None. settings: node_devices_settings.
    cri_socket: node_devices_cri_socket. A removal needs only the places in the settings or in the declaration.
    """
    is_removal = given.get("state") == "absent"
    defaults: dict[str, Any] = {}
    own: dict[str, Any] = {}
    if module == "cdi_runtime":
        defaults = {"state": "present", "cri_socket": cri_socket}
        own = {"device_plugin_dir": places(settings)["device_plugin_dir"] if is_removal else None}
    elif module == "cdi_specs":
        # The declaration's settings have the defaults.
        configuration = (declared or {}).get("configuration", {})
        defaults = {"state": "present", **places({**configuration, **(declared or {})})}
        if declared and not is_removal:
            specs = declared["cdi_specs"].items()
            templates = {name: spec for name, spec in specs if name.startswith(cdi.TEMPLATE_PREFIX)}
            own = {"configuration": configuration, "templates": templates}
    elif module == "host_devices":
        defaults, own = places(settings), dict.fromkeys(host_devices.MAKERS) if is_removal else {}
    elif module == "node_tools":
        # The node chooses by its Python.
        own = {"targets": wheels.targets_of_run()}
    else:
        return dict(given)
    wanted = {name: value for name, value in given.items() if value not in (None, {}) and name not in _OF_ACTION}
    return {name: value for name, value in {**defaults, **wanted, **own}.items() if value is not None}
