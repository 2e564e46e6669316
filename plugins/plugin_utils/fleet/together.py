# SPDX-License-Identifier: Apache-2.0
"""Makes one entry for several nodes of a profile, so that a report of thousands of nodes stays readable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from ....plugin.node_device_plugin.support.tables import counted, few
from . import document, node, resources

#: Most entries for the nodes that differ. If more nodes differ, those with the same problems share an entry; if there
#: are still more, those with the same states.
MOST_ENTRIES = 50
# Most examples, if the nodes of an entry have different texts.
_MOST_TEXTS = 3


def grouped(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return an entry for each node or, if these are too many, for nodes with equal problems or equal states."""
    found = entries
    for key in (_problems, _states):
        if len(found) > MOST_ENTRIES:
            groups: dict[Any, list[dict[str, Any]]] = {}
            for each in entries:
                groups.setdefault(key(each), []).append(each)
            found = [entry for group in groups.values() for entry in shared(group)]
    return found


def _problems(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    rows = ((row["name"], row["state"], *row["reasons"]) for row in entry["resources"])
    return entry["state"], tuple(map(document.general, entry["problems"])), *rows


def _states(entry: Mapping[str, Any]) -> tuple[Any, ...]:
    rows = ((row["name"], row["state"]) for row in entry["resources"])
    return entry["state"], entry["pod"]["state"], *rows


def shared(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one entry for nodes in the same state; for a single node, its own entry."""
    if len(entries) < 2:
        return entries
    of_all = {
        **summed(f"{entries[0]['name']} and {len(entries) - 1} more", entries),
        "state": entries[0]["state"],
        "problems": _common_texts([list(map(document.general, each["problems"])) for each in entries]),
        "names": [each["name"] for each in entries],
    }
    return [of_all]


def summed(name: str, entries: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what is common to several nodes, and their sums."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in (row for each in entries for row in each["resources"]):
        rows.setdefault(row["name"], []).append(row)
    pods = [each["pod"] for each in entries if each["pod"]]
    return {
        **node.entry(name, node.Read()),
        "runtime": _common([each["runtime"] for each in entries]),
        "kubelet": _common([each["kubelet"] for each in entries]),
        "plugin": _common([each["plugin"] for each in entries if each["plugin"]]),
        "pod": {key: _common([pod[key] for pod in pods]) for key in pods[0]} if pods else None,
        "members": len(entries),
        "versions": document.versions(entries),
        "images": document.images(entries),
        "resources": [_sum(rows[each]) for each in sorted(rows)],
    }


def _common(values: list[Any]) -> Any:
    """Return the value that all have; None if they differ."""
    return values[0] if values and all(value == values[0] for value in values) else None


def _common_texts(found: list[list[str]]) -> list[str]:
    """Return the texts of all nodes, and a text with examples of the others. found: the texts of each node."""
    counts = Counter(text for texts in found for text in dict.fromkeys(texts))
    shared = [text for text, count in counts.items() if count == len(found)]
    others = [f"{text} ({counted(count, 'node')})" for text, count in counts.most_common() if count < len(found)]
    return shared + [f"different on these nodes: {'; '.join(few(others, _MOST_TEXTS))}"] * bool(others)


def _sum(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one row with the sums of the nodes' rows. Its state is the worst, or healthy although some are empty."""
    states = document.counted((row["state"] for row in rows), resources.STATES)
    return {
        **rows[0],
        **{key: document.total(row[key] for row in rows) for key in ("capacity", "healthy")},
        "state": next((state for state in states if resources.STATES[state] != "idle"), next(iter(states))),
        "states": states,
        "reasons": _common_texts([row["reasons"] for row in rows]),
    }
