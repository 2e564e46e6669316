# SPDX-License-Identifier: Apache-2.0
"""Combines all nodes in one JSON document, from which the table and the page are made."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import node, resources

#: Raise this number if a key is removed or gets another meaning, but not for a new key.
SCHEMA_VERSION = 1
_SEVERITIES = ("failed", "degraded", "unknown", "pending")
_NUMBERS = ("capacity", "healthy", "allocated")


def document(nodes: Sequence[dict[str, Any]], version: str, generated: datetime.datetime) -> dict[str, Any]:
    """Return the document of all nodes.

    nodes: results of ``node.entry``. version: of the collection. generated: the current time, with time zone.
    """
    return {
        "schema_version": SCHEMA_VERSION,
        "generated": generated.astimezone(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "collection_version": version,
        "summary": {
            "nodes": _counted((each["state"] for each in nodes for _node in range(weight(each))), node.STATES),
            "versions": {
                "container runtime": _versions(_named(each["runtime"]) for each in nodes),
                "kubelet": _versions((each["kubelet"] or {}).get("version") for each in nodes),
                "plugin": _versions((each["plugin"] or {}).get("version") for each in nodes),
            },
            "resources": [_of_resource(name, nodes) for name in _names(nodes)],
            "findings": list(findings(nodes)),
        },
        "nodes": list(nodes),
    }


def weight(entry: Mapping[str, Any]) -> int:
    """Return how many nodes an entry stands for: one, or the nodes of a profile that are as declared."""
    return int(entry.get("members", 1))


def findings(nodes: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each problem once, with the affected nodes. Severe and frequent problems come first."""
    found: dict[tuple[str, str], tuple[list[str], list[str]]] = {}
    for each in nodes:
        for severity, resource, text in _of_node(each):
            names, where = found.setdefault((severity, text), ([], []))
            for name, known in ((resource, names), (each["name"], where)):
                if name is not None and name not in known:
                    known.append(name)
    for text, names in _contents(nodes):
        found["degraded", text] = ([], names)
    for severity, text in sorted(found, key=lambda key: (_SEVERITIES.index(key[0]), -len(found[key][1]), key[1])):
        names, where = found[severity, text]
        yield {"severity": severity, "text": text, "resources": sorted(names), "nodes": where}


def _of_node(each: Mapping[str, Any]) -> Iterator[tuple[str, str | None, str]]:
    severity, problems = node.STATES[each["state"]], each["problems"]
    if each["state"] == "unreachable":
        # The first problem is the reason. The reason names the host, so only the node's entry shows it.
        yield severity, None, "not reached"
        problems = problems[1:]
    if each["state"] == "pending":
        yield severity, None, "no kubelet runs yet: the node has not joined"
    # The notes of a node without a problem are no findings.
    for problem in problems if severity != "ok" else ():
        yield severity, None, problem
    for row in each["resources"]:
        severity = resources.STATES[row["state"]]
        if severity in ("failed", "degraded"):
            # For these states, the node's own problems give the reason.
            by_node = row["state"] in ("not served", "without CDI")
            for reason in row["reasons"] or ([] if by_node else [row["state"]]):
                yield severity, row["name"], reason


def _contents(nodes: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Yield a text for each image name with different images, and the nodes with the less frequent images."""
    ids: dict[tuple[str, ...], dict[str, list[str]]] = {}
    for each in nodes:
        pod = each["pod"] or {}
        if pod.get("image") and pod.get("image_id"):
            # Compare only ids of the same form (imported or pulled) and architecture.
            form = pod["image_id"].partition("sha256:")[0]
            kind = (pod["image"], str(pod.get("architecture")), form)
            ids.setdefault(kind, {}).setdefault(pod["image_id"], []).append(each["name"])
    for (image, *_rest), found in ids.items():
        fewer = sorted(found.values(), key=len)[:-1]
        if fewer:
            text = (
                f"{image} is not the same image on all nodes, so some pods run another build: give each build its own "
                "tag (image_pull_policy IfNotPresent pulls a tag only once)"
            )
            yield text, [name for names in fewer for name in names]


def _of_resource(name: str, nodes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [row for each in nodes for row in each["resources"] if row["name"] == name]
    numbers = {key: _sum(row[key] for row in rows) for key in _NUMBERS}
    return {
        "name": name,
        "nodes": sum(weight(each) for each in nodes for row in each["resources"] if row["name"] == name),
        **numbers,
        "states": _counted((row["state"] for row in rows), resources.STATES),
    }


def _sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of the known numbers; None if no number is known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def _names(nodes: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({row["name"] for each in nodes for row in each["resources"]})


def _counted(states: Iterable[str], order: Iterable[str]) -> dict[str, int]:
    counts = Counter(states)
    return {state: counts[state] for state in order if counts[state]}


def _versions(versions: Iterable[str | None]) -> dict[str, int]:
    """Return the number of nodes by version (or "unknown"). The most frequent version is first."""
    return dict(Counter(version or "unknown" for version in versions).most_common())


def _named(runtime: Mapping[str, Any] | None) -> str | None:
    return runtime and " ".join(filter(None, (runtime["name"], runtime["version"])))
