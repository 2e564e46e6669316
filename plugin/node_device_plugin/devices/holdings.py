"""Finds devices that containers hold by a name the kubelet no longer counts: after a rename, a move or a removal.

The kubelet counts held devices by resource and id alone. If it gave a device as ``example.com/old``, the device is free
as ``example.com/new``, and the kubelet would give the device out a second time.
"""

from __future__ import annotations

import collections
import functools
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Callable, NamedTuple

from ..cdi.resolution import NO_SPECS, Resolution
from ..declaration import Device, Resource
from ..declaration.model import devices_behind
from .reason import Reason

#: The kind of the reason for a device that containers hold under another name.
HELD_BY_ANOTHER_NAME = "held by another name"
#: The reason for a device that may still be held by its former name, or with its former nodes.
IN_DOUBT = "the kubelet has not said yet which pods hold the device since before the change"


class Holding(NamedTuple):
    """A device that a container holds, as the kubelet knows it.

    holder: ``namespace/pod``. host_paths: the host paths that the container got from this device alone; empty if there
    are none or they are unknown. is_share: whether other containers may have the device, too. is_ours: whether our
    plugin gave the device, so that its id identifies it.
    """

    holder: str
    resource: str
    kubelet_id: str
    host_paths: frozenset[str]
    is_share: bool = False
    is_ours: bool = True


#: Resolves the links of a host path.
Real = Callable[[str], str]
#: The host paths that a device gives, with the links of its nodes resolved.
_PathsOf = Callable[[Device], frozenset[str]]


def renamed(
    former: Sequence[Resource],
    now: Sequence[Resource],
    real: Real = os.path.realpath,
    specs: Resolution = NO_SPECS,
) -> dict[str, dict[str, str]]:
    """By resource, the ids of its devices that another resource offered before, each with the reason why it must wait.

    real, specs: see held_by_other_names.
    """
    moved = _moved(former, now, real, specs, specs)
    return {
        name: dict.fromkeys(those, IN_DOUBT)
        for name, devices in moved.items()
        if (those := [each for each, found in devices.items() if any(holding.resource != name for holding in found)])
    }


def with_new_ids(
    former: Sequence[Resource], now: Sequence[Resource], real: Real, specs_before: Resolution, specs: Resolution
) -> dict[str, list[str]]:
    """By resource, the ids of its devices that had another id before.

    real, specs: see held_by_other_names. specs_before: the specs of that time.
    """
    return {name: list(devices) for name, devices in _moved(former, now, real, specs_before, specs).items()}


def _moved(
    former: Sequence[Resource], now: Sequence[Resource], real: Real, specs_before: Resolution, specs: Resolution
) -> dict[str, dict[str, list[Holding]]]:
    before = functools.partial(_host_paths, real=real, specs=specs_before)
    offered = [
        Holding("", resource.name, resource.kubelet_ids(device)[0], before(device), resource.replicas > 1)
        for resource in former
        for device in resource.devices
    ]
    return _matches(now, offered, functools.partial(_host_paths, real=real, specs=specs))


def held_by_other_names(
    resources: Sequence[Resource],
    holdings: Sequence[Holding],
    real: Real = os.path.realpath,
    specs: Resolution = NO_SPECS,
) -> dict[str, dict[str, str]]:
    """By resource, the ids of its devices that are held under another name, each with its holders and their resources.

    Two names mean one device if they give a host path that no other device gives, and the paths of one include all
    paths of the other. If either has no such path, the id decides. A device that was or is exclusive is withheld until
    it is free. A device that was shared and still is keeps all its shares.

    resources: with all their devices. real: resolves the links of a host path; os.path.realpath reads the file system,
    so it must not run in the event loop. specs: other programs' CDI specs, which give nodes of devices.
    """
    paths = functools.partial(_host_paths, real=real, specs=specs)
    return {
        name: {
            device_id: _held({f"{each.holder} as {each.resource}" for each in found})
            for device_id, found in devices.items()
        }
        for name, devices in _matches(resources, holdings, paths).items()
    }


def still_meant(names: Collection[str], holdings: Sequence[Holding]) -> dict[str, str]:
    """The fully qualified CDI names that containers hold, each with the reason why it keeps its meaning until they end.

    The id decides, whatever the resource or its kind was called when the device was given.
    """
    who: dict[str, set[str]] = {}
    for each in holdings:
        for device_id in devices_behind(each.kubelet_id):
            who.setdefault(device_id, set()).add(f"{each.holder} as {each.resource}")
    held = {name: who.get(name.partition("=")[2]) for name in names}
    meant = ", with its earlier device nodes"
    return {name: _held(holders, meant) for name, holders in held.items() if holders}


def _held(holders: Collection[str], more: str = "") -> Reason:
    """A reason whose kind omits the pods, because each kind is a series, and readers of metrics must not see pods."""
    return Reason("held by {}{}".format(", ".join(sorted(holders)), more), HELD_BY_ANOTHER_NAME)


def _matches(
    resources: Sequence[Resource], holdings: Sequence[Holding], paths_of: _PathsOf
) -> dict[str, dict[str, list[Holding]]]:
    offered = {(resource.name, device.id): device for resource in resources for device in resource.devices}
    counted = {resource.name: resource for resource in resources}
    foreign = [holding for holding in holdings if not _is_counted(holding, counted, offered, paths_of)]
    if not foreign:
        return {}
    # A container's paths may be those of several devices, and the kubelet counts some of them itself.
    uncounted = set(map(id, foreign))
    by_themselves = {
        (holding.holder, holding.resource, device_id)
        for holding in holdings
        if holding.holder and id(holding) not in uncounted
        for device_id in devices_behind(holding.kubelet_id)
    }
    paths = {(resource.name, device.id): paths_of(device) for resource in resources for device in resource.devices}
    givers = collections.Counter(path for given in paths.values() for path in given)
    by_path: dict[str, _Place] = {}
    by_id: dict[str, list[_Place]] = {}
    for resource in resources:
        for device in resource.devices:
            own = {path for path in paths[resource.name, device.id] if givers[path] == 1}
            place = _Place(resource, device, frozenset(own))
            by_id.setdefault(device.id, []).append(place)
            by_path.update(dict.fromkeys(own, place))
    found: dict[str, dict[str, list[Holding]]] = {}
    for holding in foreign:
        theirs = {path for path in holding.host_paths if givers[path] < 2}
        by_name = [place for name in devices_behind(holding.kubelet_id) for place in by_id.get(name, ())]
        same = [by_path[path] for path in theirs if path in by_path]
        # If all other devices are gone, one device alone may give a shared node such as /dev/vfio/vfio.
        same = [place for place in same if _is_same(holding, place, paths[place.resource.name, place.device.id])]
        same += [place for place in by_name if holding.is_ours and not (theirs and place.own)]
        for place in same:
            if (holding.holder, place.resource.name, place.device.id) in by_themselves:
                continue
            # The kubelet counts this device itself, or the device was shared and still is.
            if _is_of(holding, place.resource, place.device) or (place.resource.replicas > 1 and holding.is_share):
                continue
            found.setdefault(place.resource.name, {}).setdefault(place.device.id, []).append(holding)
    return found


def _is_same(holding: Holding, place: _Place, paths: frozenset[str]) -> bool:
    if place.device.cdi_devices and place.own <= holding.host_paths:
        # Which of a container's CDI names belongs to the held device may be unknown; then it has the paths of all.
        return True
    return holding.host_paths <= paths or paths <= holding.host_paths


class _Place(NamedTuple):
    """An offered device. own: the paths that no other device gives."""

    resource: Resource
    device: Device
    own: frozenset[str]


def _is_counted(
    holding: Holding,
    resources: Mapping[str, Resource],
    offered: Mapping[tuple[str, str], Device],
    paths_of: _PathsOf,
) -> bool:
    """Whether the kubelet itself keeps this device from others: its name is offered and still means the same device."""
    for device_id in devices_behind(holding.kubelet_id):
        device = offered.get((holding.resource, device_id))
        if device is not None and _is_of(holding, resources[holding.resource], device):
            given = paths_of(device)
            return not (given and holding.host_paths) or bool(given & holding.host_paths)
    return False


def _is_of(holding: Holding, resource: Resource, device: Device) -> bool:
    return resource.name == holding.resource and holding.kubelet_id in resource.kubelet_ids(device)


def _host_paths(device: Device, real: Real, specs: Resolution) -> frozenset[str]:
    """The host paths that a device gives, with the links of its nodes resolved."""
    mounts = (mount.host_path for mount in device.container_edits.mounts if mount.is_bind)
    nodes = (*(node.host_path for node in device.nodes), *specs.foreign_nodes(device))
    return frozenset([*map(real, nodes), *mounts])
