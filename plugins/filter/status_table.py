# SPDX-License-Identifier: Apache-2.0
"""Two tables: what roles extended_resources and device_plugin read of all nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.table import aligned

DOCUMENTATION = r"""
name: status_table
short_description: What the node objects show, and what the plugins are
description:
  - Node by resource, with what is declared, capacity, allocatable and what is to be said of it.
  - Below it what the plugin of each node runs as, its configuration by the hash, and whether it is as declared.
positional: hostvars
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description:
      - The variables of all hosts; what was read is in C(extended_resources_result) and C(device_plugin_report).
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Print what the node objects show
  ansible.builtin.debug:
    msg: "{{ ansible_play_hosts_all | nodedevices.kubernetes.status_table(hostvars) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The tables.
  type: str
"""

_HEAD = ("NODE", "RESOURCE", "DECLARED", "CAPACITY", "ALLOCATABLE", "STATE")


_PLUGINS = ("NODE", "PLUGIN", "CONFIGURATION", "STATE")


def status_table(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> str:
    """What was read of ``hosts`` as text; a host of which nothing was read says so."""
    hosts = list(hosts)
    return f"{_node_objects(hosts, hostvars)}\n\n{_plugins(hosts, hostvars)}"


def _plugins(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [_PLUGINS]
    for host in hosts:
        report = hostvars[host].get("device_plugin_report") or {}
        lines.append(
            (
                host,
                str(report.get("runs_as", "-")),
                str(report.get("configuration", "-")),
                str(report.get("state") or "not reached"),
            )
        )
    return aligned(lines)


def _node_objects(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [_HEAD]
    for host in hosts:
        variables = hostvars[host]
        result = variables.get("extended_resources_result") or {}
        if result.get("failed", True):
            reason = str(result.get("msg") or "not reached").splitlines()[0].removeprefix(f"{host}: ")
            lines.append((host, "-", "-", "-", "-", reason))
        for row in result.get("resources", ()):
            lines.append((host, *(row[key] for key in ("resource", "declared", "capacity", "allocatable", "state"))))
    return aligned(lines)


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Any]:
        """Name to function."""
        return {"status_table": status_table}
