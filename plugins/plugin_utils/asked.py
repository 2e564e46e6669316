# SPDX-License-Identifier: Apache-2.0
"""Parses what tasks ask: the options of module node_preflight, and the arguments of a role's module.

The play uses the preflight's answer for a role's module only if both have given the module the same arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean

from ...plugin.node_device_plugin.declaration import cdi as cdi_names
from ...plugin.node_device_plugin.support import directory_names
from . import host_devices, play, wheels
from .declaration import plain

# Options of a role's module that only the action reads.
_OF_ACTION = frozenset(("declaration", "pruned", "max_parallel_restarts"))


class Asked(NamedTuple):
    """The options, most of which only the action reads. declared: the host's declaration, or None."""

    declared: dict[str, Any] | None
    requires: list[str]
    command: str | None
    mode: str | None
    takeover: bool
    kubeconfig: str | None
    node_name: str
    deployment: dict[str, Any]
    drain: dict[str, Any] | None
    #: Whether the play's first task on the node asks, which takes the node lock.
    is_first: bool
    #: Whether devices are injected by CDI.
    cdi: bool
    #: The arguments of the module on the node.
    of_module: dict[str, Any]

    @property
    def device_paths(self) -> dict[str, Any]:
        return self.of_module.get("device_paths") or {}

    @property
    def host_paths(self) -> dict[str, Any]:
        return (self.declared or {}).get("host_paths", {})

    @property
    def dynamic_cdi_dir(self) -> str:
        """The declared directory of the plugin's CDI specs."""
        declared: str | None = places((self.declared or {}).get("configuration", {}))["cdi_dir"]
        return declared or directory_names.CDI_DIRS[-1]

    @property
    def converge(self) -> dict[str, Any]:
        """The arguments with which the node looks at each module, by the module's name."""
        return self.of_module.get("converge") or {}


def parse(
    arguments: Mapping[str, Any],
    declared: dict[str, Any] | None,
    host: str,
    hosts: int = 0,
    cri_socket: str | None = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Asked:
    """Parse the options. Raises AnsibleError for invalid minutes.

    host: the node's name in the inventory. hosts: number of hosts of the batch. cri_socket: default of the option.
    settings: node_devices_settings.
    """
    rest = plain(dict(arguments))
    requires = rest.pop("requires", [])
    command, lock, drain = rest.pop("command", None), rest.pop("lock", None), rest.pop("drain", None)
    if drain:
        minutes(drain, "node_devices_drain_minutes")
    if command:
        rest["commands"] = [command]
    if lock is not None:
        rest["lock"] = _wanted_lock(lock, host, hosts)
    if declared:
        rest.update(
            device_plugin_dir=declared["kubelet_device_plugin_dir"],
            device_paths=declared["device_paths"],
            host_paths=list(declared["host_paths"]),
        )
        if declared.get("accounts"):
            rest["accounts"] = declared["accounts"]
        if declared.get("dra") and rest.get("mode") != "daemonset":
            # A pod has a service account instead of the node's kubeconfig.
            rest["dra"] = declared["dra"]
    cdi = boolean(rest.pop("cdi", True))
    cdi = declared["needs_cdi"] if declared else cdi
    requires = requires.split(",") if isinstance(requires, str) else list(requires)
    if "runtime" in requires:
        rest["cdi"] = cdi
    if cri_socket is not None:
        rest.setdefault("cri_socket", cri_socket)
    cdi_dir = places(settings)["cdi_dir"]
    if cdi_dir is not None:
        rest.setdefault("cdi_dir", cdi_dir)
    if not cdi:
        rest.get("converge", {}).pop("cdi_runtime", None)
    if declared or (cdi and "runtime" in requires):
        # The node also judges other owners' specs.
        converge = rest.setdefault("converge", {})
        converge["cdi_specs"] = converge.get("cdi_specs") or [{}]
    for name, each in rest.get("converge", {}).items():
        rest["converge"][name] = [completed(name, of, declared, settings, cri_socket) for of in each]
    return Asked(
        declared=declared,
        requires=requires,
        command=command,
        mode=rest.pop("mode", None),
        takeover=boolean(rest.pop("takeover", False)),
        kubeconfig=rest.pop("kubeconfig", None),
        node_name=rest.pop("node_name", None) or host,
        deployment=rest.pop("deployment", None) or {},
        drain=drain,
        is_first=lock is not None,
        cdi=cdi,
        of_module=rest,
    )


def _wanted_lock(lock: Mapping[str, Any], host: str, hosts: int) -> dict[str, Any]:
    """Convert the option ``lock`` for the module. hosts: number of the batch. Raises AnsibleError for wrong minutes."""
    number = _number(lock.get("minutes", 15))
    if not number > 0:
        raise AnsibleError(
            f"lock.minutes: must be a number above 0, not {lock.get('minutes')} (the playbooks read it from "
            "node_devices_lock_minutes)"
        )
    return play.wanted_lock(number, "*" if boolean(lock.get("break", False)) else "", host, hosts)


def minutes(arguments: Mapping[str, Any], variable: str) -> float:
    """Return the argument ``minutes``, default 10. Raises AnsibleError. variable: the user's variable in messages."""
    given = arguments.get("minutes", 10)
    number = _number(given)
    if not number >= 0:
        raise AnsibleError(f"{variable}: must be a number of minutes, 0 or more, not {given}")
    return number


def _number(given: Any) -> float:
    """Return a number; NaN, which no comparison accepts, if the value is none."""
    try:
        return float(given)
    except (TypeError, ValueError):
        return math.nan


def without_kubeconfig(why: str) -> str:
    """Return the message for a host without a kubeconfig. why: what needs the kubeconfig."""
    return f"node_devices_kubeconfig: not set, but {why}: set it to a kubeconfig file on the controller"


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
    """Return the arguments with which the node executes a role's module, for its action and for the preflight.

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
            templates = {name: spec for name, spec in specs if name.startswith(cdi_names.TEMPLATE_PREFIX)}
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
