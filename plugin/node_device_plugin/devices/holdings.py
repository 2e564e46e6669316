"""Devices that containers hold by a name that the kubelet does not count any more: after a rename, a move, a removal.

The kubelet counts what is held by resource and id alone. A device that it gave as ``example.com/old`` is free for it as
``example.com/new``, and it would give the device out a second time.
"""

from __future__ import annotations

import collections
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Callable, NamedTuple

from ..declaration import Device, Resource
from ..declaration.model import devices_behind
from .reason import Reason

#: The kind of the reason of a device that containers hold by another name.
HELD_BY_ANOTHER_NAME = "held by another name"
#: The reason of a device of which nobody knows yet whether it is held by the name, or with the nodes, it had until now.
IN_DOUBT = "the kubelet has not said yet who holds it since before the change"


class Holding(NamedTuple):
    """One device of the kubelet's in one container.

    holder: ``namespace/pod``. host_paths: what the container was given of this device alone; empty where there is
    nothing, or nobody knows. is_share: whether others may have the device, too. is_ours: whether our plugin gave it,
    so that its id tells.
    """

    holder: str
    resource: str
    kubelet_id: str
    host_paths: frozenset[str]
    is_share: bool = False
    is_ours: bool = True


#: What a path of the host leads to.
Real = Callable[[str], str]


def renamed(
    former: Sequence[Resource], now: Sequence[Resource], real: Real = os.path.realpath
) -> dict[str, dict[str, str]]:
    """Resource to the ids of its devices that another resource had, each with the reason why it is to wait.

    real: as for held_by_other_names.
    """
    offered = [
        Holding("", resource.name, resource.kubelet_ids(device)[0], _host_paths(device, real), resource.replicas > 1)
        for resource in former
        for device in resource.devices
    ]
    result: dict[str, dict[str, str]] = {}
    for name, devices in _matches(now, offered, real).items():
        for device_id, found in devices.items():
            if any(holding.resource != name for holding in found):
                result.setdefault(name, {})[device_id] = IN_DOUBT
    return result


def held_by_other_names(
    resources: Sequence[Resource], holdings: Sequence[Holding], real: Real = os.path.realpath
) -> dict[str, dict[str, str]]:
    """Resource to the ids of its devices that are held by another name, each with who holds it, and as what.

    Two names mean one device where they give a host path that no other device gives, and one of both gives all that the
    other one gives. Where either gives none, the id tells. What was exclusive, or is now, is nobody else's until it is
    free. A device that was shared and still is goes on with all its shares.

    resources: with all their devices. real: what a path of the host leads to; os.path.realpath reads the file system:
    not for the event loop.
    """
    return {
        name: {
            device_id: _held({f"{each.holder} as {each.resource}" for each in found})
            for device_id, found in devices.items()
        }
        for name, devices in _matches(resources, holdings, real).items()
    }


def still_meant(names: Collection[str], holdings: Sequence[Holding]) -> dict[str, str]:
    """Which of these fully qualified CDI names have holders, each with the reason why it means the same until then.

    Whatever the resource or its kind was called when it was given: the id decides.
    """
    who: dict[str, set[str]] = {}
    for each in holdings:
        for device_id in devices_behind(each.kubelet_id):
            who.setdefault(device_id, set()).add(f"{each.holder} as {each.resource}")
    held = {name: who.get(name.partition("=")[2]) for name in names}
    meant = ", with the device nodes that it had before"
    return {name: _held(holders, meant) for name, holders in held.items() if holders}


def _held(holders: Collection[str], more: str = "") -> Reason:
    """Which pod it is, is nothing for a series, and for whoever may read the metrics."""
    return Reason("held by {}{}".format(", ".join(sorted(holders)), more), HELD_BY_ANOTHER_NAME)


def _matches(
    resources: Sequence[Resource], holdings: Sequence[Holding], real: Real
) -> dict[str, dict[str, list[Holding]]]:
    offered = {(resource.name, device.id): device for resource in resources for device in resource.devices}
    counted = {resource.name: resource for resource in resources}
    foreign = [holding for holding in holdings if not _is_counted(holding, counted, offered, real)]
    if not foreign:
        return {}
    paths = {
        (resource.name, device.id): _host_paths(device, real) for resource in resources for device in resource.devices
    }
    givers = collections.Counter(path for given in paths.values() for path in given)
    by_path: dict[str, _Place] = {}
    by_id: dict[str, list[_Place]] = {}
    for resource in resources:
        for device in resource.devices:
            own = {path for path in paths[resource.name, device.id] if givers[path] == 1}
            place = _Place(resource, device, bool(own))
            by_id.setdefault(device.id, []).append(place)
            by_path.update(dict.fromkeys(own, place))
    found: dict[str, dict[str, list[Holding]]] = {}
    for holding in foreign:
        theirs = {path for path in holding.host_paths if givers[path] < 2}
        by_name = [place for name in devices_behind(holding.kubelet_id) for place in by_id.get(name, ())]
        same = [by_path[path] for path in theirs if path in by_path]
        # A node that drivers share, such as /dev/vfio/vfio, is given by one device alone where the others have gone.
        same = [place for place in same if _nested(holding.host_paths, paths[place.resource.name, place.device.id])]
        same += [place for place in by_name if holding.is_ours and not (theirs and place.has_own_paths)]
        for place in same:
            # The kubelet counts this one; or there are shares enough.
            if _is_of(holding, place.resource, place.device) or (place.resource.replicas > 1 and holding.is_share):
                continue
            found.setdefault(place.resource.name, {}).setdefault(place.device.id, []).append(holding)
    return found


def _nested(one: frozenset[str], other: frozenset[str]) -> bool:
    return one <= other or other <= one


class _Place(NamedTuple):
    """A device as it is offered. has_own_paths: whether it gives a path that no other device gives."""

    resource: Resource
    device: Device
    has_own_paths: bool


def _is_counted(
    holding: Holding, resources: Mapping[str, Resource], offered: Mapping[tuple[str, str], Device], real: Real
) -> bool:
    """Whether the kubelet itself gives this device to nobody else: its name is offered, and still means the same."""
    for device_id in devices_behind(holding.kubelet_id):
        device = offered.get((holding.resource, device_id))
        if device is not None and _is_of(holding, resources[holding.resource], device):
            given = _host_paths(device, real)
            return not (given and holding.host_paths) or bool(given & holding.host_paths)
    return False


def _is_of(holding: Holding, resource: Resource, device: Device) -> bool:
    return resource.name == holding.resource and holding.kubelet_id in resource.kubelet_ids(device)


def _host_paths(device: Device, real: Real) -> frozenset[str]:
    """What it gives of the host, links followed."""
    mounts = (mount.host_path for mount in device.container_edits.mounts if mount.is_bind)
    return frozenset([*(real(node.host_path) for node in device.nodes), *mounts])
