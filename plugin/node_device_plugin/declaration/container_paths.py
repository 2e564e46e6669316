"""Checks paths inside a container. If nodes or mounts have the same path, the container silently gets only one.

A CDI edit replaces an earlier edit at the same path (pkg/cdi, ContainerEdits.Apply). Without CDI,
the order of the device nodes in the container is not guaranteed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Union

from .model import DRA, ContainerEdits, Device, DeviceNode, Mount, Resource
from .patterns import placeholders
from .problems import Problem

_Thing = Union[DeviceNode, Mount]
#: Path in the container to the node or mount at this path, and its field.
_Taken = dict[str, tuple[_Thing, str]]


def problems(resource: Resource, where: str) -> Iterator[Problem]:
    """Path conflicts within one resource. This check ignores conflicts between two resources."""
    yield from _of_all_found(resource, where + ".discover")
    common: _Taken = {}
    yield from _claim(_mounts(resource.container_edits, where + ".container_edits"), common)
    taken = dict(common)
    for place, device in resource.placed_devices(where):
        things = _things(device, place)
        alone = list(_claim(things, dict(common)))
        yield from alone
        if not alone and resource.container_limit != 1:
            yield from _claim(
                things,
                taken,
                " with both devices",
                ": choose another path" + _or_one_device(resource),
            )


def _of_all_found(resource: Resource, where: str) -> Iterator[Problem]:
    """Problems of container paths that are the same for every discovered device."""
    templates = [(where, resource.discover.container_path)]
    templates += [
        ("%s.nodes[%d]" % (where, position), node.container_path)
        for position, node in enumerate(resource.discover.nodes)
        if not node.is_common
    ]
    for place, template in templates:
        if template is not None and not placeholders(template) and resource.container_limit != 1:
            yield Problem(
                place + ".container_path",
                "is the same for every device, so that a container with several devices would get only one: add a "
                "placeholder such as {name}" + _or_one_device(resource),
            )


def _or_one_device(resource: Resource) -> str:
    """What also solves a conflict between devices, except with DRA, where a claim decides how many there are."""
    return "" if resource.api == DRA else ", or set container_limit: 1"


def _things(device: Device, where: str) -> list[tuple[str, str, _Thing]]:
    """The device's nodes and mounts, each as (field, path in the container, node or mount)."""
    nodes: dict[str, tuple[str, str, _Thing]] = {}
    for number, node in enumerate(device.nodes):
        # parse.py reports a path that two nodes of a device share.
        nodes.setdefault(node.path, ("%s.nodes[%d].path" % (where, number), node.path, node))
    return [*nodes.values(), *_mounts(device.container_edits, where + ".container_edits")]


def _mounts(edits: ContainerEdits, where: str) -> list[tuple[str, str, _Thing]]:
    return [
        ("%s.mounts[%d].container_path" % (where, number), mount.container_path, mount)
        for number, mount in enumerate(edits.mounts)
    ]


def _claim(
    things: Sequence[tuple[str, str, _Thing]], taken: _Taken, whose: str = "", fix: str = ""
) -> Iterator[Problem]:
    for place, path, thing in things:
        other, field = taken.setdefault(path, (thing, place))
        # An invalid path is reported already and is empty here.
        if path and other != thing:
            yield Problem(place, f"is also the path of {field}: a container{whose} would get only one of them{fix}")
