"""The size of a resource's device list in bytes. Above a limit, the kubelet loses the resource."""

from __future__ import annotations

from collections.abc import Iterator

from .model import ContainerEdits, Device, Resource
from .problems import Problem

#: Maximum bytes of a ListAndWatch response that a kubelet accepts: gRPC's default receive limit.
LIMIT = 4 << 20
#: The maximum bytes of an entry without its id: tags and lengths of the entry and the id, and the
#: health "Unhealthy".
_ENTRY = 3 + 3 + 2 + len("Unhealthy")
#: The maximum bytes of a NUMA node: two nested fields around a number of up to five bytes.
_TOPOLOGY = 2 + 2 + 6


def listed_size(resource: Resource, device: Device) -> int:
    """The maximum bytes that all shares of a device take in v1beta1's ListAndWatchResponse.

    The real size is a few bytes less for each entry, because protobuf shortens small numbers.
    """
    topology = 0 if device.numa_node is None else _TOPOLOGY
    return resource.replicas * (_ENTRY + len(device.id.encode()) + resource.share_length + topology)


def size_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """A problem if the declared devices, or a discovered one with the shortest id, do not fit."""
    shortest = Device("a", (), ContainerEdits(), {}, required=False)
    if resource.discover.methods and listed_size(resource, shortest) > LIMIT:
        message = "is too high: the shares of one device exceed the kubelet's limit of %d bytes for a list" % LIMIT
        yield Problem(where + ".replicas", message)
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
