# SPDX-License-Identifier: Apache-2.0
"""Renders all hosts' reports of role verification as a table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...plugin.node_device_plugin.support import tables
from ...plugin.node_device_plugin.verification import report as states

_HEAD = ("NODE", "RESOURCE", "CAPACITY", "HEALTHY", "CONTAINER SAW", "STATE")


def verification_table(hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the reports of ``hosts`` as one text table.

    hostvars: the variables of all hosts, with the reports in ``verification_report``, and the results of role
    extended_resources in ``extended_resources_result``. A host without a report has the row "not verified", or "not
    joined" if the play skipped the host (``node_devices_node.joined`` is false).
    """
    lines: list[tuple[str, ...]] = []
    for host in hosts:
        variables = hostvars[host]
        report = variables.get("verification_report") or {}
        # If the verification was skipped (check mode) or failed, the report has no rows.
        if "resources" not in report:
            has_joined = (variables.get("node_devices_node") or {}).get("joined", True)
            lines.append((host, "-", "-", "-", "-", "not verified" if has_joined else "not joined"))
        elif report.get("nodes") == 0:
            lines.append((host, "-", "-", "-", "-", "no nodes"))
        for row in report.get("resources", ()):
            numbers = (str(row["capacity"]), str(row["healthy"]))
            lines.append((host, row["resource"], *numbers, " ".join(row["seen"]), states.state_text(row)))
        # No container can show a static capacity, because it has no device.
        for row in (variables.get("extended_resources_result") or {}).get("resources") or ():
            if row["declared"] not in ("plugin", "-"):
                lines.append((host, row["resource"], row["capacity"], row["allocatable"], "", row["state"]))
    return tables.table(_HEAD, lines)


class FilterModule:
    """The class that Ansible loads."""

    def filters(self) -> dict[str, Any]:
        """Return the filters' functions by name."""
        return {"verification_table": verification_table}
