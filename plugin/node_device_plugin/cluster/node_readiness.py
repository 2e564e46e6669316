"""Decides whether a node object shows the plugin's devices, and computes the patches that say so.

A pod that needs a device can only start after the node object's allocatable shows the device. The kubelet updates the
node object up to 10 s after the plugin has registered. The module does not call the API.
"""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..support.tables import some
from . import quantity
from .extended_resources import capacities_of

#: The type of the node condition.
CONDITION = "NodeDevicesReady"
#: The effects that a taint may have.
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
#: Seconds between two updates of an unchanged condition, as the kubelet does by default (nodeStatusReportFrequency).
HEARTBEAT = 300.0
#: Seconds that a difference must last until a true condition becomes false, because the kubelet writes every 10 s.
PATIENCE = 15.0
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class Taint(NamedTuple):
    """A taint with any value."""

    key: str
    effect: str

    @classmethod
    def of(cls, text: str) -> Taint:
        """Read a taint from ``KEY:EFFECT``. Raises ValueError."""
        key, _colon, effect = text.rpartition(":")
        if not key or effect not in EFFECTS:
            raise ValueError("must be KEY:EFFECT with the effect {}, not {!r}".format(" or ".join(EFFECTS), text))
        return cls(key, effect)

    def __str__(self) -> str:
        return f"{self.key}:{self.effect}"


class ToldNode(NamedTuple):
    """The node object to tell. name: the node's. taint: to remove; None for none. condition: whether to set ours."""

    name: str
    taint: Taint | None
    condition: bool


class Offered(NamedTuple):
    """What the plugin offers. counts: healthy devices by resource. unregistered: resources that the kubelet lacks."""

    counts: Mapping[str, int]
    unregistered: Sequence[str] = ()


class Verdict(NamedTuple):
    """Whether a node's devices are allocatable, with the condition's reason and message."""

    is_ready: bool
    reason: str
    message: str


def judge(node: Mapping[str, Any], offered: Offered) -> Verdict:
    """Whether the node object's allocatable shows exactly what the plugin offers, 0 included."""
    if offered.unregistered:
        return Verdict(False, "NotRegistered", "not registered with the kubelet: " + some(offered.unregistered))
    shown = capacities_of(node, "allocatable")
    wrong = [
        "%s (offered: %d, allocatable: %s)" % (name, count, shown.get(name, "none"))
        for name, count in sorted(offered.counts.items())
        if not quantity.same(shown.get(name), count)
    ]
    if wrong:
        return Verdict(False, "NotAllocatable", "the node object does not show yet: " + some(wrong))
    # The text is the same for every declaration, so that a reload writes nothing.
    return Verdict(True, "Allocatable", "the node object shows the number of devices that the plugin offers")


def taint_removal(node: Mapping[str, Any], taint: Taint) -> list[dict[str, Any]]:
    """The operations of a JSON patch that remove a taint; empty if the node does not have the taint."""
    for place, found in enumerate((node.get("spec") or {}).get("taints") or ()):
        if (found.get("key"), found.get("effect")) == taint:
            path = "/spec/taints/%d" % place
            return [{"op": "test", "path": path, "value": found}, {"op": "remove", "path": path}]
    return []


def condition_change(
    node: Mapping[str, Any], verdict: Verdict, now: datetime.datetime, lasted: float = 0.0
) -> list[dict[str, Any]]:
    """The operations of a JSON patch of the status that set our condition; empty if the condition is right and recent.

    now: in UTC. lasted: seconds for which the node's devices have not been allocatable.
    """
    place, before = _condition(node)
    status = "True" if verdict.is_ready else "False"
    if before.get("status") == "True" and not verdict.is_ready and lasted < PATIENCE:
        return []
    said = {"type": CONDITION, "status": status, "reason": verdict.reason, "message": verdict.message}
    if all(before.get(key) == value for key, value in said.items()) and _age(before, now) < HEARTBEAT:
        return []
    at = now.strftime(_TIME)
    since = before.get("lastTransitionTime") if before.get("status") == status else None
    after = {**said, "lastHeartbeatTime": at, "lastTransitionTime": since or at}
    if place is not None:
        path = "/status/conditions/%d" % place
        test = {"op": "test", "path": path + "/type", "value": CONDITION}
        return [test, {"op": "replace", "path": path, "value": after}]
    # A node whose kubelet has not reported has no list, and so no allocatable.
    has_conditions = bool((node.get("status") or {}).get("conditions"))
    return [{"op": "add", "path": "/status/conditions/-", "value": after}] if has_conditions else []


def condition_removal(node: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The operations of a JSON patch of the status that remove our condition; empty if it is not there."""
    place, _before = _condition(node)
    if place is None:
        return []
    path = "/status/conditions/%d" % place
    return [{"op": "test", "path": path + "/type", "value": CONDITION}, {"op": "remove", "path": path}]


def _condition(node: Mapping[str, Any]) -> tuple[int | None, Mapping[str, Any]]:
    """Our condition of a node object, and its place."""
    for place, each in enumerate((node.get("status") or {}).get("conditions") or ()):
        if each.get("type") == CONDITION:
            return place, each
    return None, {}


def _age(condition: Mapping[str, Any], now: datetime.datetime) -> float:
    try:
        at = datetime.datetime.strptime(condition["lastHeartbeatTime"], _TIME).replace(tzinfo=datetime.timezone.utc)
    except (KeyError, TypeError, ValueError):
        return HEARTBEAT
    # A time in the future is of a clock that was wrong.
    age = (now - at).total_seconds()
    return age if age >= 0 else HEARTBEAT
