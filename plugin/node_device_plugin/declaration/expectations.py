"""What a container with given devices must contain. ``verify`` compares this with the container."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .env import allocate_annotations, allocate_env
from .model import Device, DeviceNode, Mount, Resource


class Expectation(NamedTuple):
    """What a container that got ``devices`` of a resource must contain.

    env: each variable with its allowed values: either those of the CDI edits, or Allocate's value.
    annotations: the container's annotations in the runtime.
    """

    devices: tuple[str, ...]
    env: dict[str, tuple[str, ...]]
    nodes: tuple[DeviceNode, ...]
    mounts: tuple[Mount, ...]
    annotations: dict[str, str]


def expected_in_container(resource: Resource, devices: Sequence[Device]) -> Expectation:
    """What a container that got ``devices`` must contain. devices: in the declaration's order."""
    variables: dict[str, list[str]] = {}
    nodes: list[DeviceNode] = []
    mounts: list[Mount] = []
    for edits in resource.edits_of(devices):
        for assignment in edits.env:
            name, _, value = assignment.partition("=")
            variables.setdefault(name, []).append(value)
        mounts.extend(mount for mount in edits.mounts if mount not in mounts)
    for device in devices:
        nodes.extend(node for node in (*device.foreign_nodes, *device.nodes) if node not in nodes)
    env = {name: tuple(values) for name, values in variables.items()}
    # CDI edits the container after the kubelet sets variables, so CDI's value replaces Allocate's.
    # Without CDI, Allocate applies the edits last, too.
    for name, value in allocate_env(resource, devices).items():
        env.setdefault(name, (value,))
    annotations = allocate_annotations(resource, devices)
    return Expectation(tuple(device.id for device in devices), env, tuple(nodes), tuple(mounts), annotations)
