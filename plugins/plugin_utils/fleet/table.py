# SPDX-License-Identifier: Apache-2.0
"""Renders the fleet as text: a table of nodes, a table of resources, and a summary line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.support import tables

#: The columns for a node's facts in the table and on the page. Maps a heading to the text of an entry; "-" if unknown.
COLUMNS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "Runtime": lambda node: _several(node, "container runtime") or _runtime(node),
    "CDI": lambda node: _cdi(node),
    "Plugin": lambda node: _known((node["plugin"] or {}).get("version"), _unready(node), _pod(node)),
    "Configuration": lambda node: _known(((node["plugin"] or {}).get("configuration_sha256") or "")[:12]),
    "Kubelet": lambda node: _several(node, "kubelet") or _kubelet(node),
}
_OF_NODE = ("NODE", "STATE", *map(str.upper, COLUMNS), "PROBLEMS")
_OF_RESOURCE = ("NODE", "RESOURCE", "CAPACITY", "HEALTHY", "ALLOCATED", "STATE", "REASONS")


def text(document: Mapping[str, Any]) -> str:
    """Return the two tables and the summary line."""
    nodes: list[tuple[str, ...]] = []
    resources: list[tuple[str, ...]] = []
    for node in document["nodes"]:
        nodes.append(
            (
                label(node),
                node["state"],
                *(text_of(node) for text_of in COLUMNS.values()),
                "; ".join(map(_line, node["problems"])),
            )
        )
        for row in node["resources"]:
            numbers = (number(row[key]) for key in ("capacity", "healthy", "allocated"))
            reasons = "; ".join(map(_line, [*row["reasons"], *row["absent"]]))
            resources.append((label(node), row["name"], *numbers, states(row), reasons))
    parts = [_table(_OF_NODE, nodes)]
    if resources:
        parts.append(_table(_OF_RESOURCE, resources))
    return "\n\n".join([*parts, summed_up(document)])


def summed_up(document: Mapping[str, Any]) -> str:
    """Return the summary line, such as ``3 nodes: 1 wrong, 2 ok``."""
    states = ", ".join(f"{count} {state}" for state, count in document["summary"]["nodes"].items())
    total = sum(document["summary"]["nodes"].values())
    return f"{total} {'node' if total == 1 else 'nodes'}{': ' if states else ''}{states}"


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


def _line(sentence: str) -> str:
    """Return a text of several lines as one line."""
    return " ".join(sentence.split())


def _known(*parts: str | None) -> str:
    return " ".join(filter(None, parts)) or "-"


def _several(node: Mapping[str, Any], what: str) -> str:
    """Return the versions with their numbers of nodes, if an entry stands for nodes with different versions."""
    versions = node.get("versions", {}).get(what, {})
    return ", ".join(f"{version} ({count})" for version, count in versions.items()) if len(versions) > 1 else ""


def _runtime(node: Mapping[str, Any]) -> str:
    return _known((node["runtime"] or {}).get("name"), (node["runtime"] or {}).get("version"))


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
