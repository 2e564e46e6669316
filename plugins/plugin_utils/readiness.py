# SPDX-License-Identifier: Apache-2.0
"""Decides from facts whether a node is ready. Asks nobody, and returns sentences without the host's name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import host_devices, requirements
from .asked import Asked
from .kubernetes import drain


def problems(asked: Asked, facts: Mapping[str, Any], present: Mapping[str, Any], runs_units: bool) -> list[str]:
    """Return unmet requirements, what a module on the node would refuse, and what others do with the node's devices.

    present: the facts without missing paths that a role will create. runs_units: whether systemd will run the plugin.
    """
    found = requirements.unmet(asked.of_node, present, asked.device_paths, asked.cdi, asked.host_paths)
    # Without root, the modules' answers are unreliable.
    if facts["uid"] == 0:
        for module in facts.get("converged") or {}:
            found += [problem for answer in _answers(facts, module) for problem in answer.get("problems") or ()]
        found += requirements.not_for_service(facts["python"]) if runs_units else ()
    if asked.cdi and "runtime" in asked.requires:
        found += [problem for answer in _answers(facts, "cdi_specs") for problem in answer.get("crashing", ())]
    if asked.declared and asked.mode and not asked.takeover:
        names = [resource["name"] for resource in asked.declared["resources"]]
        found += requirements.taken(facts["device_plugins"], names, asked.mode, asked.declared["foreign_kinds"])
    return found + (list(drain.obstacles(asked.drain, bool(asked.kubeconfig))) if asked.drain else [])


def warnings(asked: Asked, facts: Mapping[str, Any], in_cluster: set[str]) -> list[str]:
    """Return other owners' CDI specs that runtimes do not load, resources that the run removes, and untested versions.

    in_cluster: resources of an earlier run that only the cluster has.
    """
    found = requirements.untested(asked.of_node, facts)
    if asked.declared and facts["runtime"].get("version"):
        found += [problem for answer in _answers(facts, "cdi_specs")[:1] for problem in answer.get("broken", ())]
    if asked.declared and asked.mode:
        served = set((facts["device_plugins"]["instance"] or {}).get("resources", ()))
        declared = {resource["name"] for resource in asked.declared["resources"]}
        found += requirements.removed((served - declared) | in_cluster)
    return found


def without_awaited(facts: Mapping[str, Any], makers: Mapping[str, Any], skip_tags: Sequence[str]) -> Mapping[str, Any]:
    """Return the facts without the missing paths that role host_devices will create.

    If the run skips the role, or the role's module would change nothing, the role creates nothing.
    """
    # The first answer is for the task that creates, and a later one for the task that prunes.
    keys = ("changed", "problems", "in_use")
    creates_nothing = any(not any(answer.get(key) for key in keys) for answer in _answers(facts, "host_devices")[:1])
    if "host_devices" in skip_tags or not any(makers.values()) or creates_nothing:
        return facts
    awaited = {
        key: [path for path in facts[key] if not host_devices.may_make(path, **makers)]
        for key in ("missing_devices", "missing_host_paths")
    }
    return {**facts, **awaited}


def _answers(facts: Mapping[str, Any], module: str) -> list[dict[str, Any]]:
    """Return a module's answers in check mode."""
    return [found["answer"] for found in (facts.get("converged") or {}).get(module, ())]
