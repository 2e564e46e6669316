"""How long the kubelet's list of a resource is, in bytes: beyond a limit it loses the whole resource."""

from __future__ import annotations

from collections.abc import Iterator

from .model import ContainerEdits, Device, Resource
from .problems import Problem

#: Bytes of the longest ListAndWatch answer that a kubelet takes: gRPC's default for what is received.
LIMIT = 4 << 20
#: Bytes of an entry beside its id, at the most: its tag and length, those of the id, and the health "Unhealthy".
_ENTRY = 3 + 3 + 2 + len("Unhealthy")
#: Bytes of a NUMA node, at the most: two fields in each other around a number of up to five bytes.
_TOPOLOGY = 2 + 2 + 6


def listed_size(resource: Resource, device: Device) -> int:
    """Bytes that all shares of a device take in v1beta1's ListAndWatchResponse, at the most.

    It is a few bytes an entry too many, because protobuf shortens small numbers.
    """
    topology = 0 if device.numa_node is None else _TOPOLOGY
    return resource.replicas * (_ENTRY + len(device.id.encode()) + resource.share_length + topology)


def size_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """Whether the declared devices fit; of those that will be found, whether one with the shortest id does."""
    shortest = Device("a", (), ContainerEdits(), {}, required=False)
    if resource.discover.methods and listed_size(resource, shortest) > LIMIT:
        message = "the kubelet takes no list of more than %d bytes, and these shares of one device are more" % LIMIT
        yield Problem(where + ".replicas", message)
    total, fitting = 0, 0
    for device in resource.devices:
        total += listed_size(resource, device)
        fitting += total <= LIMIT
    if total > LIMIT:
        each = "" if resource.replicas == 1 else " with %d replicas each" % resource.replicas
        yield Problem(
            where + ".devices",
            "the kubelet takes no list of more than %d bytes: %d of these %d devices%s fit into it"
            % (LIMIT, fitting, len(resource.devices), each),
        )
