# SPDX-License-Identifier: Apache-2.0
"""Combines all nodes in one JSON document, from which the table and the page are made."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from . import node, resources

#: Raise this number if a key is removed or gets another meaning, but not for a new key.
SCHEMA_VERSION = 1
_SEVERITIES = ("failed", "degraded", "unknown", "pending")
#: The numbers of a resource.
NUMBERS = ("capacity", "healthy", "allocated")
# A pod's name where rollout.look and a kubelet's message have it.
_POD = re.compile(r"\bpod [^\s/]+/\S+ (?=does not |has |waits for the scheduler)")
_KUBELETS_POD = re.compile(r" pod=\S+")


def document(nodes: Sequence[dict[str, Any]], version: str, generated: datetime.datetime) -> dict[str, Any]:
    """Return the document of all nodes.

    nodes: results of ``node.entry``. version: of the collection. generated: the current time, with time zone.
    """
    rows = [row for each in nodes for row in each["resources"]]
    return {
        "schema_version": SCHEMA_VERSION,
        "generated": generated.astimezone(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "collection_version": version,
        "summary": {
            "nodes": counted((each["state"] for each in nodes for _node in range(weight(each))), node.STATES),
            "versions": versions(nodes),
            "resources": [_of_resource(name, rows) for name in sorted({row["name"] for row in rows})],
            "findings": list(findings(nodes)),
        },
        "nodes": list(nodes),
    }


def weight(entry: Mapping[str, Any]) -> int:
    """Return how many nodes an entry stands for: one, or several nodes of a profile."""
    return int(entry.get("members", 1))


def names(entry: Mapping[str, Any]) -> list[str]:
    """Return the names of the nodes that an entry stands for. Nodes that are as declared have the profile's name."""
    return list(entry.get("names") or [entry["name"]])


def general(text: str) -> str:
    """Return a problem without the pod's name, so that nodes with the same problem have the same text."""
    return _KUBELETS_POD.sub("", _POD.sub("the plugin's pod ", text))


def findings(nodes: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield each problem once, with the affected nodes. Severe and frequent problems come first."""
    # The dicts keep the order.
    found: dict[tuple[str, str], tuple[set[str], dict[str, None]]] = {}
    for each in nodes:
        for severity, resource, text in _of_node(each):
            of, where = found.setdefault((severity, general(text)), (set(), {}))
            of.update(filter(None, [resource]))
            where.update(dict.fromkeys(names(each)))
    for text, where_else in builds(nodes):
        found["degraded", text] = (set(), dict.fromkeys(where_else))
    for severity, text in sorted(found, key=lambda key: (_SEVERITIES.index(key[0]), -len(found[key][1]), key[1])):
        of, where = found[severity, text]
        yield {"severity": severity, "text": text, "resources": sorted(of), "nodes": list(where)}


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


def builds(nodes: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Yield a text for each image name with different images, and the nodes with the less frequent images."""
    ids: dict[tuple[str, ...], dict[str, dict[str, int]]] = {}
    for each in nodes:
        for of_pod in each["images"] if "images" in each else images([each]):
            # Compare only ids of the same form (imported or pulled) and architecture.
            form = of_pod["image_id"].partition("sha256:")[0]
            kind = (of_pod["image"], str(of_pod["architecture"]), form)
            counts = ids.setdefault(kind, {}).setdefault(of_pod["image_id"], {})
            counts.update(dict.fromkeys(names(each), of_pod["nodes"]))
    for (image, *_rest), found in ids.items():
        fewer = sorted(found.values(), key=lambda counts: sum(counts.values()))[:-1]
        if fewer:
            text = (
                f"{image} is not the same image on all nodes, so some pods run another build: give each build its own "
                "tag (image_pull_policy IfNotPresent pulls a tag only once)"
            )
            yield text, [name for counts in fewer for name in counts]


def images(nodes: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the images of the nodes' pods, each with the number of nodes."""
    pods = (each["pod"] or {} for each in nodes)
    keys = ("image", "image_id", "architecture")
    counts = Counter(tuple(pod.get(key) for key in keys) for pod in pods if pod.get("image") and pod.get("image_id"))
    return [{**dict(zip(keys, values, strict=True)), "nodes": count} for values, count in counts.items()]


def _of_resource(name: str, all_rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    rows = [row for row in all_rows if row["name"] == name]
    states = [state for row in rows for state in Counter(row.get("states", [row["state"]])).elements()]
    return {
        "name": name,
        "nodes": len(states),
        **{key: total(row[key] for row in rows) for key in NUMBERS},
        "states": counted(states, resources.STATES),
    }


def total(numbers: Iterable[int | None]) -> int | None:
    """Return the sum of the known numbers; None if no number is known."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known else None


def counted(states: Iterable[str], order: Iterable[str]) -> dict[str, int]:
    """Return how often each state occurs."""
    counts = Counter(states)
    return {state: counts[state] for state in order if counts[state]}


def versions(nodes: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Return the number of nodes by version (or "unknown"). The most frequent version is first."""
    counts: dict[str, Counter[str]] = {"container runtime": Counter(), "kubelet": Counter(), "plugin": Counter()}
    for each in nodes:
        kubelet, plugin = ((each[part] or {}).get("version") for part in ("kubelet", "plugin"))
        own = (runtime_of(each), kubelet, plugin)
        for (what, known), version in zip(counts.items(), own, strict=True):
            known.update(each["versions"][what] if "versions" in each else [version or "unknown"])
    return {what: dict(known.most_common()) for what, known in counts.items()}


def runtime_of(entry: Mapping[str, Any]) -> str:
    """Return the name and version of an entry's container runtime; empty if unknown."""
    runtime = entry["runtime"] or {}
    return " ".join(filter(None, (runtime.get("name"), runtime.get("version"))))
