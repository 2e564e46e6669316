# SPDX-License-Identifier: Apache-2.0
"""Renders the fleet as text: a table of nodes, a table of resources, and a summary line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ....plugin.node_device_plugin.support import tables
from . import document as documents

#: The columns for a node's facts in the table and on the page. Maps a heading to the text of an entry; "-" if unknown.
COLUMNS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "Runtime": lambda node: _several(node, "container runtime") or documents.runtime_of(node) or "-",
    "CDI": lambda node: _cdi(node),
    "Plugin": lambda node: _known((node["plugin"] or {}).get("version"), _unready(node), _pod(node)),
    "Configuration": lambda node: _known(((node["plugin"] or {}).get("configuration_sha256") or "")[:12]),
    "Kubelet": lambda node: _several(node, "kubelet") or _kubelet(node),
}
_OF_NODE = ("NODE", "STATE", *map(str.upper, COLUMNS), "PROBLEMS")
_OF_RESOURCE = ("NODE", "RESOURCE", "CAPACITY", "HEALTHY", "ALLOCATED", "STATE", "REASONS")


def text(document: Mapping[str, Any]) -> str:
    """Return the two tables and the summary line."""
    nodes = [
        (label(node), node["state"], *(text_of(node) for text_of in COLUMNS.values()), _line(node["problems"]))
        for node in document["nodes"]
    ]
    resources = [(label(node), *_of_row(row)) for node in document["nodes"] for row in node["resources"]]
    parts = [_table(_OF_NODE, nodes), *([_table(_OF_RESOURCE, resources)] if resources else [])]
    return "\n\n".join([*parts, _summed_up(document["summary"]["nodes"])])


def _of_row(row: Mapping[str, Any]) -> tuple[str, ...]:
    numbers = (number(row[key]) for key in documents.NUMBERS)
    return row["name"], *numbers, states(row), _line([*row["reasons"], *row["absent"]])


def _summed_up(counts: Mapping[str, int]) -> str:
    """Return the summary line, such as ``3 nodes: 1 wrong, 2 ok``. counts: of nodes by state."""
    states = ", ".join(f"{count} {state}" for state, count in counts.items())
    return f"{tables.counted(sum(counts.values()), 'node')}{': ' if states else ''}{states}"


def label(node: Mapping[str, Any]) -> str:
    """Return the name of an entry, such as ``worker-1``, ``pool: 40 nodes`` or ``pool: worker-7 and 9 more``."""
    of = node.get("profile")
    if of is None:
        return str(node["name"])
    return f"{of}: {tables.counted(node['members'], 'node') if node['name'] == of else node['name']}"


def states(row: Mapping[str, Any]) -> str:
    """Return a row's state, or the states with their numbers of nodes."""
    counts = row.get("states", {})
    return ", ".join(f"{count} {state}" for state, count in counts.items()) if len(counts) > 1 else str(row["state"])


def number(value: int | None) -> str:
    """Return a number as text; "-" if unknown."""
    return "-" if value is None else str(value)


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Return a table without the columns that no row has a value in, so that more tables fit the terminal."""
    shown = [at for at in range(len(head)) if at < 2 or any(row[at] not in ("", "-") for row in rows)]
    return tables.table([head[at] for at in shown], [[row[at] for at in shown] for row in rows])


def _line(texts: Iterable[str]) -> str:
    """Return texts, which may have several lines, as one line."""
    return "; ".join(" ".join(text.split()) for text in texts)


def _known(*parts: str | None) -> str:
    return " ".join(filter(None, parts)) or "-"


def _several(node: Mapping[str, Any], what: str) -> str:
    """Return the versions with their numbers of nodes, if an entry stands for nodes with different versions."""
    versions = node.get("versions", {}).get(what, {})
    return ", ".join(f"{version} ({count})" for version, count in versions.items()) if len(versions) > 1 else ""


def _cdi(node: Mapping[str, Any]) -> str:
    cdi = (node["runtime"] or {}).get("cdi") or {}
    on = "always on" if cdi.get("always_on") else "on"
    # The problems name the directories that the runtime does not read.
    off = "incomplete" if cdi.get("enabled") else "off"
    return {True: on, False: off, None: "-"}[cdi.get("effective")]


def _unready(node: Mapping[str, Any]) -> str | None:
    return "(not ready)" if node["plugin"] and not node["plugin"]["ready"] else None


def _pod(node: Mapping[str, Any]) -> str | None:
    """Return the pod's state in mode daemonset: ``pod`` if the pod runs, else for example ``pod ImagePullBackOff``."""
    pod = node.get("pod")
    if not pod or not pod["state"]:
        return None
    return "pod" if pod["state"] == "Running" else f"pod {pod['state']}"


def _kubelet(node: Mapping[str, Any]) -> str:
    kubelet = node["kubelet"]
    if kubelet is None:
        return "-"
    return (kubelet["version"] or "running") if kubelet["running"] else "none"
