"""Counts a node's pod slots, and its resources in use, as the scheduler does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
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
    total = quantity.whole(capacities_of(node, "allocatable").get("pods"))
    if total is None:
        return None
    return Slots(total, max(0, total - sum(not is_finished(pod) for pod in bound(api, name))))


def name_of(pod: Mapping[str, Any]) -> str:
    """A pod's namespace and name, such as ``default/web``."""
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


def bound(api: Api, node: str) -> list[dict[str, Any]]:
    """The pods that are bound to a node. node: its name. Raises ApiError."""
    return api.list(Place("pods"), fieldSelector="spec.nodeName=" + node)


def is_finished(pod: Mapping[str, Any]) -> bool:
    """Whether all containers of a pod have ended for good, so that the pod occupies nothing."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


class Use(NamedTuple):
    """The use of a resource. shares: number that a node's pods request. pods: their namespace/name."""

    shares: int
    pods: tuple[str, ...]


def in_use(pods: Iterable[Mapping[str, Any]]) -> dict[str, Use]:
    """The use of each resource on a node, by the scheduler's rules. pods: those that are bound to the node."""
    uses: dict[str, Use] = {}
    for pod in pods:
        if is_finished(pod):
            continue
        for resource, shares in _asked(pod["spec"]).items():
            before = uses.get(resource, Use(0, ()))
            uses[resource] = Use(before.shares + shares, tuple(sorted({*before.pods, name_of(pod)})))
    return uses


def without_claim(pods: Iterable[Mapping[str, Any]], resources: Collection[str]) -> Iterator[tuple[str, str, str, int]]:
    """Yield what running containers have in their limits without a claim that the scheduler made for it.

    pods: those that are bound to a node. resources: those that pods get by claims. Yields the pod's namespace/name, the
    container, the resource and the number.
    """
    for pod in pods:
        status = pod.get("status") or {}
        mappings = (status.get("extendedResourceClaimStatus") or {}).get("requestMappings") or ()
        claimed = {(each["containerName"], each["resourceName"]) for each in mappings}
        for container in pod["spec"].get("containers") or () if status.get("phase") == "Running" else ():
            for resource, number in _limits(container).items():
                if number and resource in resources and (container["name"], resource) not in claimed:
                    yield name_of(pod), container["name"], resource, number


def _asked(spec: Mapping[str, Any]) -> Counter[str]:
    """A pod's shares of each extended resource.

    The number is the larger of two: the sum of the containers and sidecars, and the maximum of the init containers. An
    init container's number includes the earlier sidecars, which run beside it.
    """
    sidecars: Counter[str] = Counter()
    most: Counter[str] = Counter()
    for container in spec.get("initContainers") or ():
        beside = sidecars + _limits(container)
        most |= beside
        if container.get("restartPolicy") == "Always":
            sidecars = beside
    return most | sum(map(_limits, spec.get("containers") or ()), sidecars)


def _limits(container: Mapping[str, Any]) -> Counter[str]:
    limits = ((container.get("resources") or {}).get("limits") or {}).items()
    return Counter({resource: quantity.whole(text) or 0 for resource, text in limits if "/" in resource})
