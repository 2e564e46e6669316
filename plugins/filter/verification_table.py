# SPDX-License-Identifier: Apache-2.0
"""Renders all hosts' reports of role verification as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.support import tables
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification import report as states

DOCUMENTATION = r"""
name: verification_table
short_description: Show the reports of role verification as one table
description: Each row is a resource of a node, with capacity, healthy devices, the devices in a container, and state.
  A static capacity has no devices; its row has the allocatable quantity.
positional: hostvars
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts, with the reports in C(verification_report), and the results of role
      extended_resources in C(extended_resources_result). C(node_devices_node.joined) is false for a skipped host.
    type: dict
    required: true
"""

EXAMPLES = r"""
- name: Print the verification table
  nodedevices.kubernetes.printed:
    text: "{{ ansible_play_hosts_all | nodedevices.kubernetes.verification_table(hostvars) }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The table.
  type: str
"""

_HEAD = ("NODE", "RESOURCE", "CAPACITY", "HEALTHY", "CONTAINER SAW", "STATE")


def verification_table(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the reports of ``hosts`` as one text table.

    A host without a report has the row "not verified", or "not joined" if the play skipped the host.
    """
    lines: list[tuple[str, ...]] = []
    for host in hosts:
        variables = hostvars[host]
        report = variables.get("verification_report") if hasattr(variables, "get") else None
        # If the verification was skipped (check mode) or failed, the report has no rows.
        if not report or "resources" not in report:
            state = "not verified" if _has_joined(variables) else "not joined"
            lines += [(host, "-", "-", "-", "-", state), *((host, *cells) for cells in _fixed(variables))]
            continue
        for row in report["resources"]:
            numbers = (str(row["capacity"]), str(row["healthy"]))
            lines.append((host, row["resource"], *numbers, " ".join(row["seen"]), states.state_text(row)))
        lines += [(host, *cells) for cells in _fixed(variables)]
    return tables.table(_HEAD, lines)


def _has_joined(variables: Any) -> bool:
    """Return False for a host that only the API reaches, if the cluster has no such node. The play skipped the host."""
    known = variables.get("node_devices_node") if hasattr(variables, "get") else None
    return bool((known or {}).get("joined", True))


def _fixed(variables: Any) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each declared static capacity. No container can show one, because it has no device."""
    read = variables.get("extended_resources_result") if hasattr(variables, "get") else None
    for row in (read or {}).get("resources") or ():
        if row["declared"] not in ("plugin", "-"):
            yield row["resource"], row["capacity"], row["allocatable"], "", row["state"]


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Return the filters' functions by name."""
        return {"verification_table": verification_table}
