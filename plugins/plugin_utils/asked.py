# SPDX-License-Identifier: Apache-2.0
"""Parses what a task asks of the preflight: the options of module node_preflight."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from ansible.errors import AnsibleError
from ansible.module_utils.parsing.convert_bool import boolean

from . import host_devices, play, spec_arguments, task_arguments, wheels
from .declaration import plain


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
    def of_node(self) -> list[str]:
        """The requirements that the node's facts show."""
        return [name for name in self.requires if name != "command"]

    @property
    def device_paths(self) -> dict[str, Any]:
        return self.of_module.get("device_paths") or {}

    @property
    def host_paths(self) -> dict[str, Any]:
        return (self.declared or {}).get("host_paths", {})

    @property
    def accounts(self) -> dict[str, Any]:
        """The names of users and groups whose numbers are needed."""
        return self.of_module.get("accounts") or {}

    @property
    def converge(self) -> dict[str, Any]:
        """The arguments with which the node looks at each module, by the module's name."""
        return self.of_module.get("converge") or {}


def parse(
    arguments: Mapping[str, Any],
    declared: dict[str, Any] | None,
    host: str,
    hosts: int,
    cri_socket: str | None,
    settings: Mapping[str, Any] = MappingProxyType({}),
) -> Asked:
    """Parse the options. Raises AnsibleError for invalid minutes.

    host: the node's name in the inventory. hosts: number of hosts of the batch. cri_socket: default of the option.
    settings: node_devices_settings.
    """
    rest = plain(dict(arguments))
    for of_tools in rest.get("converge", {}).get("node_tools", ()):
        # The node chooses by its Python, as in the role's task.
        of_tools["targets"] = wheels.targets_of_run()
    for of_devices in rest.get("converge", {}).get("host_devices", ()):
        of_devices.update(host_devices.module_arguments(of_devices, settings))
    requires = rest.pop("requires", [])
    command, lock, drain = rest.pop("command", None), rest.pop("lock", None), rest.pop("drain", None)
    if drain:
        task_arguments.minutes(drain, "node_devices_drain_minutes")
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
    cdi = boolean(rest.pop("cdi", True))
    cdi = declared["needs_cdi"] if declared else cdi
    requires = requires.split(",") if isinstance(requires, str) else list(requires)
    if "runtime" in requires:
        rest["cdi"] = cdi
    if not cdi:
        rest.get("converge", {}).pop("cdi_runtime", None)
    if cri_socket is not None:
        for place in (rest, *rest.get("converge", {}).get("cdi_runtime", ())):
            place.setdefault("cri_socket", cri_socket)
    if declared or (cdi and "runtime" in requires):
        # The node also judges other owners' specs.
        converge = rest.setdefault("converge", {})
        given = converge.get("cdi_specs") or [{}]
        converge["cdi_specs"] = [spec_arguments.module_arguments(declared, each) for each in given]
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
    try:
        minutes = float(lock.get("minutes", 15))
    except (TypeError, ValueError):
        minutes = 0
    if not minutes > 0:
        raise AnsibleError(
            f"lock.minutes: must be a number above 0, not {lock.get('minutes')} (the playbooks read it from "
            "node_devices_lock_minutes)"
        )
    return play.wanted_lock(minutes, "*" if boolean(lock.get("break", False)) else "", host, hosts)
