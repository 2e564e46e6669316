"""Counts the pod slots of a node as the scheduler does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from . import quantity
from .api import Api, Place
from .extended_resources import capacities_of


class Slots(NamedTuple):
    """A node's total and free pod slots."""

    total: int
    free: int


def of_node(api: Api, node: Mapping[str, Any]) -> Slots | None:
    """The pod slots of a node; None until its kubelet has reported. Unfinished pods occupy a slot.

    Raises ApiError.
    """
    name = str(node["metadata"]["name"])
    total = quantity.number(capacities_of(node, "allocatable").get("pods"))
    if total is None:
        return None
    return Slots(int(total), max(0, int(total) - len(unfinished(api, name))))


def unfinished(api: Api, node: str) -> list[dict[str, Any]]:
    """The unfinished pods that are bound to a node. node: its name. Raises ApiError."""
    bound = api.list(Place("pods"), fieldSelector="spec.nodeName=" + node)
    return [pod for pod in bound if (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")]
