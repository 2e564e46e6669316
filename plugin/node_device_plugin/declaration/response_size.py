"""How long the kubelet's list of a resource is, in bytes: beyond a limit it loses the whole resource."""

from __future__ import annotations

from typing import Iterator

from .model import SHARE, ContainerEdits, Device, Resource
from .problems import Problem

#: Bytes of the longest ListAndWatch answer that a kubelet takes: gRPC's default for what is received.
LIMIT = 4 << 20
#: Bytes of a device's health, at its longest: tag, length, "Unhealthy".
_HEALTH = 2 + len("Unhealthy")


def listed_size(resource: Resource, device: Device) -> int:
    """Bytes that all shares of a device take in the answer (v1beta1's ListAndWatchResponse, in protobuf's encoding)."""
    topology = 0
    if device.numa_node is not None:
        # TopologyInfo holds NUMANode holds an id, which protobuf leaves out where it is 0.
        topology = _field(_field(1 + _varint(device.numa_node) if device.numa_node else 0))
    id_length = len(device.id.encode())
    if resource.replicas == 1:
        return _field(_field(id_length) + _HEALTH + topology)
    total, first = 0, 0
    # Shares are numbered from 0: all numbers with as many digits are as long.
    while first < resource.replicas:
        digits = len(str(first))
        end = min(10**digits, resource.replicas)
        total += (end - first) * _field(_field(id_length + len(SHARE) + digits) + _HEALTH + topology)
        first = end
    return total


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


def _field(length: int) -> int:
    """A field of ``length`` bytes with its tag and its length."""
    return 1 + _varint(length) + length


def _varint(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
