"""Which extended resources a node object should show, and the patch that gets it there. Pure: no API.

What we did is remembered in an annotation of the node object itself: a node that is built anew has neither the
capacities nor the memory of them, while a kubelet that restarts and resets capacities leaves the memory alone.
managedFields cannot serve: whoever resets a value owns it from then on.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from . import quantity

#: The memory: JSON with the keys of Memory.
ANNOTATION = "nodedevices.kubernetes/extended-resources"

#: Who a kubelet is in managedFields: its program's name, which in k3s and MicroK8s is that of all of Kubernetes.
_KUBELETS = frozenset({"kubelet", "k3s", "kubelite"})


class Memory(NamedTuple):
    """What we have to take away again.

    patched: static resource to the capacity that was there before us, None for none.
    served: resources of the device plugin, whose keys the kubelet leaves behind on the node object.
    """

    patched: dict[str, str | None]
    served: tuple[str, ...]

    def text(self) -> str | None:
        """As the annotation has it; None for nothing to remember."""
        if not self.patched and not self.served:
            return None
        return json.dumps({"patched": self.patched, "served": self.served}, sort_keys=True, separators=(",", ":"))


class CapacityConflict(Exception):
    """What must not be done; ``lines`` say why, one a resource."""

    def __init__(self, lines: list[str]) -> None:
        self.lines = lines
        super().__init__("\n".join(lines))


class Wanted(NamedTuple):
    """What a node should have.

    capacities: static resource to capacity.
    served: the device plugin's resources.
    registered: resources of all device plugins, as the node's kubelet knows them.
    """

    capacities: Mapping[str, int]
    served: frozenset[str]
    registered: frozenset[str]


class Plan(NamedTuple):
    """What to do with a node object.

    operations: of a JSON patch of the status subresource; none where nothing has to change.
    memory: what the annotation holds then, None for none.
    before, after: capacities of the names concerned, as far as there are any, and the annotation.
    allocatable: what the kubelet should make of it, None for a key that should go.
    lingering: keys of resources that are gone, which the kubelet still writes.
    """

    operations: list[dict[str, Any]]
    memory: str | None
    before: dict[str, Any]
    after: dict[str, Any]
    allocatable: dict[str, str | None]
    lingering: tuple[str, ...]


def plan(node: Mapping[str, Any], wanted: Wanted) -> Plan:
    """The way from a node object to what is wanted. Raises CapacityConflict."""
    capacity = capacities_of(node)
    memory = remembered(node)
    problems = [
        f"{name}: a device plugin on this node serves it ({capacity.get(name, 'none')} there now): take its capacity "
        f"out of the declaration, or the device plugin off the node; the kubelet forgets it 5 minutes later"
        for name in sorted(set(wanted.capacities) & wanted.registered)
    ]
    if wanted.capacities and not capacity:
        problems.append("the node object shows no capacity at all: its kubelet has not reported yet; run again then")
    if problems:
        raise CapacityConflict(problems)
    target: dict[str, str | None] = {name: str(value) for name, value in wanted.capacities.items()}
    for name, before in memory.patched.items():
        # What a device plugin has taken over since is its own.
        if name not in target and name not in wanted.registered:
            target[name] = before
    left = {name for name in memory.served if name not in wanted.served and name not in target}
    forgotten = left - wanted.registered
    # The kubelet's own leftover, 0 or not; what somebody patched since is theirs.
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


class Restoration(NamedTuple):
    """What a node restores of its own accord. restored: resource to capacity, none where nothing was reset.

    operations: of a JSON patch; such as only test where nothing was reset.
    """

    operations: list[dict[str, Any]]
    restored: dict[str, str]


def restoration(node: Mapping[str, Any], capacities: Mapping[str, int], registered: frozenset[str]) -> Restoration:
    """What a restart of the kubelet has reset, and nothing else. Raises CapacityConflict.

    capacities, registered: as in Wanted. Only what is remembered as ours is restored: a capacity that a run takes away,
    or has yet to bring, is not, and whoever set another number than 0 has meant it.
    """
    capacity, text, memory = capacities_of(node), annotation_of(node), remembered(node)
    reset = {
        name: str(value)
        for name, value in capacities.items()
        if value and name in memory.patched and name not in registered and quantity.same(capacity.get(name), "0")
    }
    operations: list[dict[str, Any]] = [{"op": "test", "path": "/metadata/name", "value": node["metadata"]["name"]}]
    if text is not None:
        # A run that has changed what is ours in the meantime goes before.
        operations.append({"op": "test", "path": f"/metadata/annotations/{escaped(ANNOTATION)}", "value": text})
    return Restoration([*operations, *_set(capacity, reset)], reset)


def kept_by_the_kubelet(before: Mapping[str, Any], now: Mapping[str, Any], expected: Plan) -> list[str]:
    """Of a device plugin's resources that a plan took off the node object, those that the kubelet still writes.

    By the node object alone it cannot be told beforehand: what has gone is 0 allocatable whether or not the kubelet
    has forgotten it. before: the node object that the plan was made for. Empty where something else differs, too.
    """
    wrong, served = differing(now, expected, "allocatable"), remembered(before).served
    return wrong if all(name in served and expected.allocatable[name] is None for name in wrong) else []


def remember_served(node: Mapping[str, Any], names: Iterable[str]) -> list[dict[str, Any]]:
    """The operations with which a node object says again that these resources are to be taken off it."""
    memory = remembered(node)
    return _annotate(node, memory._replace(served=tuple(sorted({*memory.served, *names}))).text())


def differing(node: Mapping[str, Any], expected: Plan, part: str) -> list[str]:
    """The names whose ``part`` of the status (capacity, allocatable) is not as the plan has it."""
    values = capacities_of(node, part)
    return sorted(name for name, value in expected.allocatable.items() if not quantity.same(values.get(name), value))


def rows(node: Mapping[str, Any], wanted: Wanted) -> list[dict[str, str]]:
    """A row for each resource that is declared or remembered, with what is to be said of it."""
    capacity, allocatable, memory = capacities_of(node), capacities_of(node, "allocatable"), remembered(node)
    result = []
    for name in sorted({*wanted.capacities, *wanted.served, *memory.patched, *memory.served}):
        now, usable = capacity.get(name), allocatable.get(name)
        declared = wanted.capacities.get(name)
        if declared is not None:
            state = _state_of_static(name, str(declared), now, usable, memory, wanted.registered)
        elif name in wanted.served:
            state = "served" if name in wanted.registered else "not registered"
        elif name in memory.patched:
            state = "not declared any more: the next run takes it away"
        else:
            state = "left behind by the device plugin: a run takes it away once the kubelet has let go of it"
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
        return "as declared" if quantity.same(usable, declared) else "not allocatable yet"
    if name in memory.patched and quantity.same(now, "0"):
        return "reset by a restart of the kubelet: the next run restores it"
    return "not as declared: the next run patches it"


def is_ready(node: Mapping[str, Any]) -> bool:
    """Whether the node object says so."""
    return bool(_ready(node).get("status") == "True")


def readiness(node: Mapping[str, Any]) -> str:
    """What the node object says of its kubelet."""
    if is_ready(node):
        return "the node is Ready, so look into its kubelet's journal"
    reason = _ready(node).get("message") or "its kubelet has never reported"
    return f"the node is not Ready ({reason}): run again when it is"


def _ready(node: Mapping[str, Any]) -> Mapping[str, Any]:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == "Ready"), {})


def capacities_of(node: Mapping[str, Any], part: str = "capacity") -> dict[str, str]:
    """Resource to quantity; empty where the kubelet has not reported yet."""
    return dict((node.get("status") or {}).get(part) or {})


def annotation_of(node: Mapping[str, Any]) -> str | None:
    """The memory as text."""
    return (node["metadata"].get("annotations") or {}).get(ANNOTATION)


def remembered(node: Mapping[str, Any]) -> Memory:
    """The memory. Raises CapacityConflict where someone has made something else of it."""
    text = annotation_of(node)
    if text is None:
        return Memory({}, ())
    try:
        data = json.loads(text)
        return Memory(dict(data["patched"]), tuple(data["served"]))
    except (RecursionError, ValueError, KeyError, TypeError) as error:
        line = (
            f"the node's annotation {ANNOTATION}, which says what is ours there, is damaged: put it back or remove it"
        )
        raise CapacityConflict([line]) from error


def _before(capacity: Mapping[str, str], name: str) -> str | None:
    """What comes back when ours goes: a 0 is what a device plugin leaves behind."""
    value = capacity.get(name)
    return None if value is None or quantity.same(value, "0") else value


def _is_the_kubelets(node: Mapping[str, Any], name: str) -> bool:
    """Whether the kubelet wrote the capacity last, as it does for a device plugin's resource."""
    for entry in node["metadata"].get("managedFields") or ():
        if entry.get("manager") in _KUBELETS and entry.get("subresource") == "status":
            status = (entry.get("fieldsV1") or {}).get("f:status") or {}
            if f"f:{name}" in (status.get("f:capacity") or {}):
                return True
    return False


def registered_by(node: Mapping[str, Any]) -> frozenset[str]:
    """The resources of device plugins by a node object alone: what its kubelet wrote, and has something of.

    A capacity that we patched is ours there, however often its kubelet makes it allocatable.
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
        # The whole map: what somebody else has put there meanwhile would go.
        version = {"op": "test", "path": "/metadata/resourceVersion", "value": node["metadata"]["resourceVersion"]}
        return [version, {"op": "add", "path": "/metadata/annotations", "value": {ANNOTATION: text}}]
    return _change(f"/metadata/annotations/{escaped(ANNOTATION)}", now, text)


def _set(capacity: Mapping[str, str], changes: Mapping[str, str | None]) -> list[dict[str, Any]]:
    operations: list[dict[str, Any]] = []
    if any(name not in capacity for name in changes):
        # What is not there has no value to test, and somebody else may have added it meanwhile.
        operations.append({"op": "test", "path": "/status/capacity", "value": dict(capacity)})
    for name, value in sorted(changes.items()):
        operations += _change(f"/status/capacity/{escaped(name)}", capacity.get(name), value)
    return operations


def _change(path: str, now: str | None, value: str | None) -> list[dict[str, Any]]:
    """Only where the value is still the one that was seen."""
    guard = [] if now is None else [{"op": "test", "path": path, "value": now}]
    if value is None:
        return [*guard, {"op": "remove", "path": path}]
    return [*guard, {"op": "add", "path": path, "value": value}]


def escaped(name: str) -> str:
    """A name as a part of a JSON pointer (RFC 6901)."""
    return name.replace("~", "~0").replace("/", "~1")


def _shown(annotation: str | None, values: Mapping[str, str | None]) -> dict[str, Any]:
    shown: dict[str, Any] = {"capacity": {name: value for name, value in sorted(values.items()) if value is not None}}
    if annotation is not None:
        shown["annotations"] = {ANNOTATION: annotation}
    return shown
