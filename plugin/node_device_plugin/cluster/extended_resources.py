"""Computes the patch that sets a node object's extended resources. The module does not call the API.

An annotation of the node object records our changes. If a node is rebuilt, its node object has neither the capacities
nor the annotation. A restarted kubelet resets the capacities and keeps the annotation. managedFields cannot serve as
the record, because a writer that resets a value becomes the value's manager.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from . import quantity

#: The annotation that contains our record, as JSON with the keys of Memory.
ANNOTATION = "nodedevices.kubernetes/extended-resources"

#: The state of a static resource whose declared capacity is allocatable.
AS_DECLARED = "as declared"
#: The state of a resource that no device plugin serves any more. The kubelet lists such a resource for 5 minutes.
LEFT_BEHIND = (
    "no longer served by a device plugin: the kubelet lists it until 5 minutes after the plugin withdrew it, and a "
    "later run removes it"
)
# The kubelet's program names, which managedFields contains. k3s and MicroK8s have one program for all components.
_KUBELETS = frozenset({"kubelet", "k3s", "kubelite"})


class Memory(NamedTuple):
    """The record of the changes that a later run must undo.

    patched: maps each static resource to its capacity before our patch; None if it had no capacity.
    served: resources of the device plugin. The kubelet leaves their keys behind on the node object.
    """

    patched: dict[str, str | None]
    served: tuple[str, ...]

    def text(self) -> str | None:
        """The text of the annotation; None for an empty record."""
        if not self.patched and not self.served:
            return None
        return json.dumps({"patched": self.patched, "served": self.served}, sort_keys=True, separators=(",", ":"))


class CapacityConflict(Exception):
    """A change that must not be made, or that was not made. The text has one line for each reason."""


class Wanted(NamedTuple):
    """The wanted state of a node.

    capacities: maps each static resource to its capacity.
    served: the device plugin's resources.
    registered: the resources of all device plugins that the node's kubelet knows.
    by_claims: the resources of the DRA driver. A key that a device plugin left on the node object for such a resource,
    even with 0, keeps the scheduler of Kubernetes 1.34 from offering the driver's devices under that name.
    """

    capacities: Mapping[str, int]
    served: frozenset[str]
    registered: frozenset[str]
    by_claims: frozenset[str] = frozenset()


class Plan(NamedTuple):
    """The changes to a node object.

    operations: of a JSON patch of the status subresource; empty if nothing must change.
    memory: the annotation after the patch; None for no annotation.
    before, after: the annotation, and the capacities that change (a missing capacity is left out).
    allocatable: the quantities that the kubelet must report afterwards; None for a key that must disappear.
    lingering: keys of removed resources that the kubelet still writes.
    """

    operations: list[dict[str, Any]]
    memory: str | None
    before: dict[str, Any]
    after: dict[str, Any]
    allocatable: dict[str, str | None]
    lingering: tuple[str, ...]


def plan(node: Mapping[str, Any], wanted: Wanted) -> Plan:
    """Plan the changes that bring a node object to the wanted state. Raises CapacityConflict."""
    capacity = capacities_of(node)
    memory = remembered(node)
    problems = [
        f"{name}: a device plugin on this node serves it (capacity now: {capacity.get(name, 'none')}): remove the "
        f"resource from the declaration, or remove the device plugin and wait 5 minutes for the kubelet to forget it"
        for name in sorted(set(wanted.capacities) & wanted.registered)
    ]
    if wanted.capacities and not capacity:
        problems.append("the node object has no capacity, because its kubelet has not reported yet: retry later")
    if problems:
        raise CapacityConflict("\n".join(problems))
    target: dict[str, str | None] = {name: str(value) for name, value in wanted.capacities.items()}
    for name, before in memory.patched.items():
        # If a device plugin serves the resource now, the resource belongs to that plugin.
        if name not in target and name not in wanted.registered:
            target[name] = before
    former = wanted.by_claims.intersection(capacity)
    left = {name for name in {*memory.served, *former} if name not in wanted.served and name not in target}
    forgotten = left - wanted.registered
    # Remove only a 0 or a value that the kubelet wrote. Keep a value that another writer has patched since.
    gone = {name for name in forgotten if quantity.same(capacity.get(name, "0"), "0") or _is_the_kubelets(node, name)}
    target.update(dict.fromkeys(gone))
    after = Memory(
        {name: memory.patched.get(name, _before(capacity, name)) for name in sorted(wanted.capacities)},
        tuple(sorted(wanted.served | (left & wanted.registered))),
    )
    changes = {name: value for name, value in target.items() if not quantity.same(capacity.get(name), value)}
    return Plan(
        operations=[*_annotate(node, after.text()), *_set(capacity, changes)],
        memory=after.text(),
        before=_shown(annotation_of(node), {name: capacity.get(name) for name in changes}),
        after=_shown(after.text(), changes),
        allocatable=target,
        lingering=tuple(sorted(left & wanted.registered)),
    )


def restoration(
    node: Mapping[str, Any], capacities: Mapping[str, int], registered: frozenset[str]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Plan the restoration of the capacities that a restart of the kubelet has reset. Raises CapacityConflict.

    Returns the operations of a JSON patch, and the restored resources with their capacities. If nothing was reset, the
    operations are only tests.

    capacities, registered: as in Wanted. Restores only recorded capacities, because a run may be adding or removing
    other capacities. Restores only a capacity of 0, because another writer has set any other number on purpose.
    """
    capacity, text, memory = capacities_of(node), annotation_of(node), remembered(node)
    reset = {
        name: str(value)
        for name, value in capacities.items()
        if value and name in memory.patched and name not in registered and quantity.same(capacity.get(name), "0")
    }
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/name", "value": node["metadata"]["name"]}]
    if text is not None:
        # If a run has changed the record in the meantime, this test fails the patch.
        operations.append({"op": "test", "path": f"/metadata/annotations/{escaped(ANNOTATION)}", "value": text})
    return [*operations, *_set(capacity, reset)], reset


def kept_by_the_kubelet(before: Mapping[str, Any], now: Mapping[str, Any], expected: Plan) -> list[str]:
    """The device plugin's resources that a plan removed from the node object but that the kubelet still writes.

    Before the patch, the node object does not show whether the kubelet still writes a resource with 0 allocatable.
    before: the node object before the plan. Returns an empty list if any other resource also differs from the plan.
    """
    wrong, served = differing(now, expected, "allocatable"), remembered(before).served
    return wrong if all(name in served and expected.allocatable[name] is None for name in wrong) else []


def remember_served(node: Mapping[str, Any], names: Iterable[str]) -> list[dict[str, Any]]:
    """The operations that record these resources on a node object again, so that a later run removes them."""
    memory = remembered(node)
    return _annotate(node, memory._replace(served=tuple(sorted({*memory.served, *names}))).text())


def differing(node: Mapping[str, Any], expected: Plan, part: str) -> list[str]:
    """The names of the resources whose ``part`` of the status (capacity, allocatable) differs from the plan."""
    values = capacities_of(node, part)
    return sorted(name for name, value in expected.allocatable.items() if not quantity.same(values.get(name), value))


def rows(node: Mapping[str, Any], wanted: Wanted) -> list[dict[str, str]]:
    """One row for each declared or recorded resource, with its state."""
    capacity, allocatable, memory = capacities_of(node), capacities_of(node, "allocatable"), remembered(node)
    result = []
    former = wanted.by_claims.intersection(capacity)
    for name in sorted({*wanted.capacities, *wanted.served, *memory.patched, *memory.served, *former}):
        now, usable = capacity.get(name), allocatable.get(name)
        declared = wanted.capacities.get(name)
        if declared is not None:
            state = _state_of_static(name, str(declared), now, usable, memory, wanted.registered)
        elif name in wanted.served:
            state = "served" if name in wanted.registered else "not registered"
        elif name in memory.patched:
            state = "no longer declared: the next run removes it"
        else:
            state = LEFT_BEHIND
        result.append(
            {
                "resource": name,
                "declared": "plugin" if name in wanted.served else str(declared) if declared is not None else "-",
                "capacity": now or "-",
                "allocatable": usable or "-",
                "state": state,
            }
        )
    return result


def _state_of_static(
    name: str, declared: str, now: str | None, usable: str | None, memory: Memory, registered: Iterable[str]
) -> str:
    if name in registered:
        return "a device plugin serves it"
    if quantity.same(now, declared):
        return AS_DECLARED if quantity.same(usable, declared) else "not allocatable yet"
    if name in memory.patched and quantity.same(now, "0"):
        return "reset by a restart of the kubelet: the next run restores it"
    return "not as declared: the next run patches it"


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether the node object has the condition Ready."""
    return bool(_ready(node).get("status") == "True")


def readiness(node: Mapping[str, Any]) -> str:
    """Advice for the user, depending on the condition Ready: read the kubelet's journal, or retry later."""
    if is_ready(node):
        return "the node is Ready: read the kubelet's journal on it"
    reason = _ready(node).get("message") or "its kubelet has never reported"
    return f"the node is not Ready ({reason}): retry when it is Ready"


def _ready(node: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == "Ready"), {})


def info_of(node: Mapping[str, Any], key: str) -> str:
    """A fact of the node object's ``nodeInfo``, such as ``kubeletVersion``; empty if unknown."""
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get(key) or "")


def capacities_of(node: Mapping[str, Any], part: str = "capacity") -> dict[str, str]:
    """Maps each resource to its quantity; empty until the kubelet has reported."""
    return dict((node.get("status") or {}).get(part) or {})


def annotation_of(node: Mapping[str, Any]) -> str | None:
    """The text of the annotation; None if it does not exist."""
    return (node["metadata"].get("annotations") or {}).get(ANNOTATION)


def remembered(node: Mapping[str, Any]) -> Memory:
    """The record in the annotation. Raises CapacityConflict if its text is damaged."""
    text = annotation_of(node)
    if text is None:
        return Memory({}, ())
    try:
        data = json.loads(text)
        return Memory(dict(data["patched"]), tuple(data["served"]))
    except (RecursionError, ValueError, KeyError, TypeError) as error:
        raise CapacityConflict(
            f"the node's annotation {ANNOTATION}, which records our resources, is damaged: restore or remove it"
        ) from error


def _before(capacity: Mapping[str, str], name: str) -> str | None:
    """The capacity to restore after ours is removed. None for a capacity of 0, which a device plugin leaves behind."""
    value = capacity.get(name)
    return None if value is None or quantity.same(value, "0") else value


def _is_the_kubelets(node: Mapping[str, Any], name: str) -> bool:
    """Whether managedFields names the kubelet as the manager of the resource's capacity."""
    for entry in node["metadata"].get("managedFields") or ():
        if entry.get("manager") in _KUBELETS and entry.get("subresource") == "status":
            status = (entry.get("fieldsV1") or {}).get("f:status") or {}
            if f"f:{name}" in (status.get("f:capacity") or {}):
                return True
    return False


def registered_by(node: Mapping[str, Any]) -> frozenset[str]:
    """The resources of device plugins: the kubelet wrote their capacity, and their allocatable quantity is not 0.

    A capacity that we patched is not included, because managedFields names us as its manager.
    """
    usable = capacities_of(node, "allocatable")
    return frozenset(
        name
        for name in capacities_of(node)
        if "/" in name and _is_the_kubelets(node, name) and not quantity.same(usable.get(name, "0"), "0")
    )


def _annotate(node: Mapping[str, Any], text: str | None) -> list[dict[str, Any]]:
    now = annotation_of(node)
    if now == text:
        return []
    if now is None and not node["metadata"].get("annotations"):
        # Adding the whole map would delete an annotation that another writer adds meanwhile, so test the version.
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": node["metadata"]["resourceVersion"]}
        return [version, {"op": "add", "path": "/metadata/annotations", "value": {ANNOTATION: text}}]
    return _change(f"/metadata/annotations/{escaped(ANNOTATION)}", now, text)


def _set(capacity: Mapping[str, str], changes: Mapping[str, str | None]) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    if any(name not in capacity for name in changes):
        # A missing key has no value to test, so test the whole map in case another writer adds the key meanwhile.
        operations.append({"op": "test", "path": "/status/capacity", "value": dict(capacity)})
    for name, value in sorted(changes.items()):
        operations += _change(f"/status/capacity/{escaped(name)}", capacity.get(name), value)
    return operations


def _change(path: str, now: str | None, value: str | None) -> list[dict[str, Any]]:
    """The operations that change a value, provided that the value is still ``now``."""
    guard = [] if now is None else [{"op": "test", "path": path, "value": now}]
    if value is None:
        return [*guard, {"op": "remove", "path": path}]
    return [*guard, {"op": "add", "path": path, "value": value}]


def escaped(name: str) -> str:
    """A name, escaped for a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _shown(annotation: str | None, values: Mapping[str, str | None]) -> dict[str, Any]:
    shown: dict[str, Any] = {"capacity": {name: value for name, value in sorted(values.items()) if value is not None}}
    if annotation is not None:
        shown["annotations"] = {ANNOTATION: annotation}
    return shown
