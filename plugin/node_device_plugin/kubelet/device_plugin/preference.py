"""The policies behind GetPreferredAllocation: the free devices that the kubelet should choose.

Every policy includes the required ids. Ties follow the order of the declaration, so that the same request always gets
the same answer: shares and groups stay in this order, and sorted and min keep it among equals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Callable, NamedTuple, TypeVar

from ...declaration import Device, Resource
from ...declaration.device_plugin_api import kubelet_ids

T = TypeVar("T")


class Share(NamedTuple):
    """One share of a device."""

    kubelet_id: str
    device: Device


def preferred(resource: Resource, available: Iterable[str], must_include: Iterable[str], size: int) -> list[str]:
    """``size`` ids of ``available``, chosen by the preference, in the declaration's order.

    Unknown ids are ignored. If there are too few ids, returns fewer than ``size``.
    """
    wanted = set(available) | set(must_include)
    shares = [
        Share(kubelet_id, device)
        for device in resource.devices
        for kubelet_id in kubelet_ids(resource, device)
        if kubelet_id in wanted
    ]
    musts = set(must_include)
    chosen = [share for share in shares if share.kubelet_id in musts]
    free = [share for share in shares if share.kubelet_id not in musts]
    policy = _POLICIES[resource.preference or "packed"]
    chosen += policy(free, chosen, max(0, size - len(chosen)))
    ids = {share.kubelet_id for share in chosen}
    return [share.kubelet_id for share in shares if share.kubelet_id in ids]


def _packed(free: Sequence[Share], chosen: Sequence[Share], size: int) -> list[Share]:
    """Partly used devices first, so that whole devices stay free for other pods."""
    touched = {share.device.id for share in chosen}
    groups = _grouped(free, lambda device: device.id)
    order = sorted(groups.values(), key=lambda group: (group[0].device.id not in touched, len(group)))
    return [share for group in order for share in group][:size]


def _distributed(free: Sequence[Share], chosen: Sequence[Share], size: int) -> list[Share]:
    """As many devices as possible, the least used devices first."""
    groups = _grouped(free, lambda device: device.id)
    load: dict[str, int] = dict.fromkeys(groups, 0)
    for share in chosen:
        load[share.device.id] = load.get(share.device.id, 0) + 1
    picked: list[Share] = []
    while len(picked) < size and groups:
        device_id, group = min(groups.items(), key=lambda item: (load[item[0]], -len(item[1])))
        picked.append(group.pop(0))
        load[device_id] += 1
        if not group:
            del groups[device_id]
    return picked


def _numa(free: Sequence[Share], chosen: Sequence[Share], size: int) -> list[Share]:
    """As few NUMA nodes as possible.

    First the nodes of the required ids, then the smallest node with enough shares.
    """
    touched = {share.device.numa_node for share in chosen}
    groups = _grouped(free, lambda device: device.numa_node)
    picked: list[Share] = []
    while len(picked) < size and groups:
        missing = size - len(picked)

        def rank(node: int | None, missing: int = missing) -> tuple[bool, bool, bool, int]:
            count = len(groups[node])
            enough = count >= missing
            return node not in touched, node is None, not enough, count if enough else -count

        picked += _packed(groups.pop(min(groups, key=rank)), chosen, missing)
    return picked


def _grouped(shares: Iterable[Share], key: Callable[[Device], T]) -> dict[T, list[Share]]:
    groups: dict[T, list[Share]] = {}
    for share in shares:
        groups.setdefault(key(share.device), []).append(share)
    return groups


_POLICIES: dict[str, Callable[[Sequence[Share], Sequence[Share], int], list[Share]]] = {
    "packed": _packed,
    "distributed": _distributed,
    "numa": _numa,
}
