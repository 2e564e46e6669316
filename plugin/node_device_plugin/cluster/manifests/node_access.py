"""The rights that let a pod change its own node object: the startup taint, and the condition NodeDevicesReady.

The policy compares the new object with the old one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ..node_readiness import CONDITION, Taint
from .deployment import Deployment
from .grants import Grant, Policy, cluster_name

#: The plugin's option that makes it set the condition.
CONDITION_OPTION = "--node-condition"


def grants(deployment: Deployment) -> Iterator[Grant]:
    """Yield what the pods need, if they change their node object."""
    if not deployment.tells_node:
        return
    parts = [
        *(["nodes"] if deployment.startup_taint else []),
        *(["nodes/status"] if deployment.node_condition else []),
    ]
    why = "The answer to a patch shows the node, so the pods need no right to read."
    rules = [{"apiGroups": [""], "resources": parts, "verbs": ["patch"]}]
    yield Grant(cluster_name(deployment), why, rules, _policy(deployment))


def options(deployment: Deployment) -> list[str]:
    """The plugin's options."""
    return [
        *(["--startup-taint", deployment.startup_taint] if deployment.startup_taint else []),
        *([CONDITION_OPTION] if deployment.node_condition else []),
    ]


def _policy(deployment: Deployment) -> Policy:
    return Policy(
        why="a token may change only the node of its pod, and there only what the plugin must\nchange.",
        matches={
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["UPDATE"],
            "resources": ["nodes", "nodes/status"],
        },
        variables=[
            {"name": f"{age}{part.title()}", "expression": f"dyn({source}).?{part}.orValue({{}})"}
            for age, source in (("old", "oldObject"), ("new", "object"))
            for part in ("metadata", "spec", "status")
        ],
        validations=[
            {"expression": "variables.node == request.name", "message": "the token is of a pod on another node"},
            *_equal("Metadata", but=["managedFields"]),
            *_equal("Spec", but=["taints"]),
            _same_list("Spec", "taints", _without_taint(deployment.startup_taint)),
            *_equal("Status", but=["conditions"]),
            _same_list("Status", "conditions", _without_condition(deployment.node_condition)),
        ],
    )


def _equal(part: str, but: Collection[str]) -> Iterator[dict[str, str]]:
    """Rules that a part of the node object is equal to the old one, except the keys in ``but``."""
    old, new = f"variables.old{part}", f"variables.new{part}"
    keys = " || ".join(f"key == '{each}'" for each in but)
    message = f"the plugin must not change the node's {part.lower()}"
    yield {"expression": f"{new}.all(key, {keys} || (key in {old} && {old}[key] == {new}[key]))", "message": message}
    yield {"expression": f"{old}.all(key, {keys} || key in {new})", "message": message}


def _same_list(part: str, key: str, changed: str) -> dict[str, str]:
    """A rule that a list is equal to the old one, or differs only as ``changed`` says."""
    old, new = (f"variables.{age}{part}.?{key}.orValue([])" for age in ("old", "new"))
    expression = f"{new} == {old}" + (changed.format(old=old, new=new) if changed else "")
    return {"expression": expression, "message": f"the plugin must not change the node's other {key}"}


def _without_taint(text: str | None) -> str:
    if not text:
        return ""
    taint = Taint.of(text)
    kept = f"!(each.key == '{taint.key}' && each.effect == '{taint.effect}')"
    return " || {new} == {old}.filter(each, " + kept + ")"


def _without_condition(is_set: bool) -> str:
    if not is_set:
        return ""
    others = f".filter(each, each.type != '{CONDITION}')"
    return (
        " || ({new}"
        + others
        + " == {old}"
        + others
        + f" && {{new}}.filter(each, each.type == '{CONDITION}').size() < 2)"
    )
