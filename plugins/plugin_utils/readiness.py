# SPDX-License-Identifier: Apache-2.0
"""Decides from facts whether a node is ready. Asks nobody.

Each function returns sentences without the host's name: problems, or problems and warnings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from . import host_devices, requirements
from .asked import Asked
from .kubernetes import drain


class Cluster(NamedTuple):
    """What the API server says of the node. removed: resources of an earlier run that the declaration lacks."""

    drivers: Sequence[str] = ()
    problems: Sequence[str] = ()
    warnings: Sequence[str] = ()
    removed: frozenset[str] = frozenset()


def is_answered(facts: Mapping[str, Any]) -> bool:
    """Return whether the module on the node returned facts."""
    return not facts.get("failed") and "runtime" in facts


def of_node(asked: Asked, facts: Mapping[str, Any], present: Mapping[str, Any], runs_units: bool) -> list[str]:
    """Return unmet requirements, and what a module on the node would refuse.

    present: the facts without missing paths that a role will create. runs_units: whether systemd will run the plugin.
    """
    problems = requirements.unmet(asked.of_node, present, asked.device_paths, asked.cdi, asked.host_paths)
    if facts["uid"] != 0:
        # Without root, the modules' answers are unreliable.
        return problems
    for looked in (facts.get("converged") or {}).values():
        problems += [problem for found in looked for problem in found["answer"].get("problems") or ()]
    return problems + (list(requirements.not_for_service(facts["python"])) if runs_units else [])


def without_awaited(facts: Mapping[str, Any], makers: Mapping[str, Any], skip_tags: Sequence[str]) -> Mapping[str, Any]:
    """Return the facts without the missing paths that role host_devices will create.

    If the run skips the role, or the role's module would change nothing, the role creates nothing.
    """
    # The first answer is for the task that creates, and a later one for the task that prunes.
    answers = [found["answer"] for found in (facts.get("converged") or {}).get("host_devices") or ()][:1]
    keys = ("changed", "problems", "in_use")
    creates_nothing = any(not any(answer.get(key) for key in keys) for answer in answers)
    if "host_devices" in skip_tags or not any(makers.values()) or creates_nothing:
        return facts
    awaited = {
        key: [path for path in facts[key] if not host_devices.may_make(path, **makers)]
        for key in ("missing_devices", "missing_host_paths")
    }
    return {**facts, **awaited}


def with_drivers(facts: Mapping[str, Any], drivers: Sequence[str]) -> dict[str, Any]:
    """Return the facts with the DRA drivers that only the API server knows."""
    if not drivers:
        return dict(facts)
    plugins = facts["device_plugins"]
    return {**facts, "device_plugins": {**plugins, "drivers": [*plugins["drivers"], *drivers]}}


def of_specs(asked: Asked, facts: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return problems and warnings about other owners' CDI specs, beside the problems of module cdi_specs."""
    looked = (facts.get("converged") or {}).get("cdi_specs") or ()
    answer = looked[0]["answer"] if looked else {}
    problems = answer.get("crashing", []) if asked.cdi and "runtime" in asked.requires else []
    return problems, answer.get("broken", []) if asked.declared and facts["runtime"].get("version") else []


def of_plugins(asked: Asked, facts: Mapping[str, Any]) -> list[str]:
    """Return what other plugins and DRA drivers serve of the declared devices."""
    if not asked.declared or not asked.mode or asked.takeover:
        return []
    names = [resource["name"] for resource in asked.declared["resources"]]
    return list(requirements.taken(facts["device_plugins"], names, asked.mode, asked.declared["foreign_kinds"]))


def of_drain(asked: Asked) -> list[str]:
    """Return why the play cannot drain the node."""
    return list(drain.obstacles(asked.drain, bool(asked.kubeconfig))) if asked.drain else []


def removed(asked: Asked, facts: Mapping[str, Any], in_cluster: frozenset[str]) -> list[str]:
    """Return a warning if the run removes resources that an earlier run installed."""
    if not asked.declared or not asked.mode:
        return []
    served = set((facts["device_plugins"]["instance"] or {}).get("resources", ()))
    return requirements.removed(served.difference(each["name"] for each in asked.declared["resources"]) | in_cluster)
