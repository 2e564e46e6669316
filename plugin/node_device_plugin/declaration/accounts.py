"""Names of users and groups in a declaration. Only the node knows their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from .model import Configuration, DeviceNode, Discovery, Resource
from .problems import Problem

#: Maps each field whose value may be a name to the kind of the name.
_KINDS = {"uid": "users", "gid": "groups"}
#: The numbers of users and groups by name; None for a name that the node does not know.
Numbers = Mapping[str, Mapping[str, "int | None"]]
Owned = TypeVar("Owned", DeviceNode, Discovery)


def named(resources: Iterable[Resource]) -> Iterator[tuple[str, str, str]]:
    """The path of each field that has a name, the kind of the name, and the name."""
    for resource in resources:
        for where, owned in _owned(resource):
            for key, kind in _KINDS.items():
                name = getattr(owned, key)
                if isinstance(name, str):
                    yield f"{where}.{key}", kind, name


def names(resources: Iterable[Resource]) -> dict[str, list[str]]:
    """The names of users and groups, by kind."""
    found: dict[str, set[str]] = {}
    for _where, kind, name in named(resources):
        found.setdefault(kind, set()).add(name)
    return {kind: sorted(found[kind]) for kind in _KINDS.values() if kind in found}


def with_numbers(configuration: Configuration, numbers: Numbers) -> tuple[Configuration, list[Problem]]:
    """The configuration with the node's numbers instead of names, and a problem for each name without a number.

    With a problem, the configuration keeps all names.
    """
    problems = [
        Problem(where, f"the node has no {kind[:-1]} {name!r}: create the {kind[:-1]} there, or give its number")
        for where, kind, name in named(configuration.resources)
        if numbers.get(kind, {}).get(name) is None
    ]
    if problems:
        return configuration, problems
    resources = []
    for resource in configuration.resources:
        devices = (
            device._replace(nodes=tuple(_numbered(node, numbers) for node in device.nodes))
            for device in resource.devices
        )
        discover = _numbered(resource.discover, numbers)
        resources.append(resource._replace(devices=tuple(devices), discover=discover))
    return configuration._replace(resources=tuple(resources)), []


def _numbered(owned: Owned, numbers: Numbers) -> Owned:
    names = {key: getattr(owned, key) for key in _KINDS}
    found: dict[str, Any] = {key: numbers[_KINDS[key]][name] for key, name in names.items() if isinstance(name, str)}
    return owned._replace(**found)


def _owned(resource: Resource) -> Iterator[tuple[str, DeviceNode | Discovery]]:
    """The parts of a resource that have an owner, each with its path."""
    yield f"{resource.name}.discover", resource.discover
    for device in resource.devices:
        for position, node in enumerate(device.nodes):
            yield "%s.devices (%s).nodes[%d]" % (resource.name, device.id, position), node
