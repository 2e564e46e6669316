"""The rules of the kubelet's device plugin API, v1beta1: the ids in a resource's device list, and the list's size.

The API has no shares, so the list has an entry for each share of a device. Above a size, the kubelet loses the
resource.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from . import names
from .model import ContainerEdits, Device, Resource
from .problems import Problem

#: The id of a share: the device's id and the share's number. No list has room for longer numbers.
_SHARE, _SHARE_ID = "%s::%d", re.compile(r"(.*)::(0|[1-9][0-9]{0,6})", re.DOTALL)

#: Maximum bytes of a ListAndWatch response that a kubelet accepts: gRPC's default receive limit.
LIMIT = 4 << 20
#: The maximum bytes of an entry without its id: tags and lengths of the entry and the id, and the health "Unhealthy".
_ENTRY = 3 + 3 + 2 + len("Unhealthy")
#: The maximum bytes of a NUMA node: two nested fields around a number of up to five bytes.
_TOPOLOGY = 2 + 2 + 6


def kubelet_ids(resource: Resource, device: Device) -> list[str]:
    """The ids of a device in the kubelet's list: one for each share, or its own if it has no shares."""
    if resource.replicas == 1:
        return [device.id]
    return [_SHARE % (device.id, number) for number in range(resource.replicas)]


def devices_behind(listed: str) -> tuple[str, ...]:
    """The devices that an id of the kubelet's list may mean: one with this id, or the one of a share."""
    found = _SHARE_ID.fullmatch(listed)
    return (listed, found[1]) if found else (listed,)


def with_device_ids(holders: Mapping[str, Any]) -> dict[str, Any]:
    """Add the devices behind the ids in the data of ``node-device-plugin holders``.

    Each entry of ``held`` gets ``device_ids``. ``offered`` has the device ids of each allocatable resource.
    """
    held = [{**each, "device_ids": devices_behind(each["device"])} for each in holders["held"]]
    offered = {
        resource: {device_id for each in ids for device_id in devices_behind(each)}
        for resource, ids in holders["allocatable"].items()
    }
    return {**holders, "held": held, "offered": offered}


def devices_of(resource: Resource, kubelet_ids: Sequence[str]) -> list[Device]:
    """The devices behind kubelet ids (in any order), each once, in the declaration's order.

    Raises KeyError with the first id that is not a device of this resource.
    """
    places = places_of(resource)
    return [resource.devices[place] for place in sorted({places[each] for each in kubelet_ids})]


def places_of(resource: Resource) -> dict[str, int]:
    """Each kubelet id with the index of its device in ``devices``."""
    return {each: place for place, device in enumerate(resource.devices) for each in kubelet_ids(resource, device)}


def longest_device_id(resource: Resource) -> int:
    """Maximum number of characters of a device's id, so that the ids of its shares are not too long."""
    return names.MAX_DEVICE_ID - _share_length(resource)


def _share_length(resource: Resource) -> int:
    """Maximum number of characters that a kubelet id adds to a device id."""
    return 0 if resource.replicas == 1 else len(_SHARE % ("", resource.replicas - 1))


def listed_size(resource: Resource, device: Device) -> int:
    """The maximum bytes that all shares of a device take in v1beta1's ListAndWatchResponse.

    The real size is a few bytes less for each entry, because protobuf shortens small numbers.
    """
    topology = 0 if device.numa_node is None else _TOPOLOGY
    return resource.replicas * (_ENTRY + len(device.id.encode()) + _share_length(resource) + topology)


def size_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """A problem if the shares of one device do not fit, or else if the declared devices do not.

    A discovered device counts with the shortest id.
    """
    shortest = Device("a", (), ContainerEdits(), {}, required=False)
    singles = [*resource.devices[:1], *([shortest] if resource.discover.methods else [])]
    if resource.replicas > 1 and any(listed_size(resource, device) > LIMIT for device in singles):
        message = "is too high: the shares of one device exceed the kubelet's limit of %d bytes for a list: lower it"
        yield Problem(where + ".replicas", message % LIMIT)
        return
    total, fitting = 0, 0
    for device in resource.devices:
        total += listed_size(resource, device)
        fitting += total <= LIMIT
    if total > LIMIT:
        each = "" if resource.replicas == 1 else " with %d replicas each" % resource.replicas
        yield Problem(
            where + ".devices",
            "the kubelet accepts a list of at most %d bytes: only %d of these %d devices%s fit; split the resource"
            % (LIMIT, fitting, len(resource.devices), each),
        )
