"""The variables and annotations that Allocate sets: templates, numbering and collisions."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from .model import DRA, Device, Resource
from .names import env_name_problem
from .patterns import fill, nearly_placeholders, placeholders
from .problems import Problem

_INDEX = "index"
_PATHS = ("path", "host_path")
#: How many numbers to check if a resource has discovery and thus an unknown number of devices.
_DISCOVERED = 100
_A = {"variable": "a variable", "annotation": "an annotation"}
_COLLISION = "the {} {} is also set by {} ({}), and a container may request both: rename one"
#: Separates the devices' values in a joined variable.
_SEPARATOR = ","


def allocate_env(resource: Resource, devices: Sequence[Device], numbers: Iterable[int] | None = None) -> dict[str, str]:
    """The variables of a container that gets ``devices`` of ``resource``.

    devices: each once, in the declaration's order (see device_plugin_api.devices_of). numbers: the {index} of each, by
    default from 0.
    """
    values = list(map(_values, itertools.count() if numbers is None else numbers, devices))
    joined = {
        name: _SEPARATOR.join(filter(None, (fill(template, each) for each in values)))
        for name, template in resource.joined_env.items()
    }
    return {**_filled(resource.env, values), **joined}


def allocate_annotations(resource: Resource, devices: Sequence[Device]) -> dict[str, str]:
    """The annotations of a container that gets ``devices``. {index} works as in allocate_env."""
    return _filled(resource.annotations, [_values(number, device) for number, device in enumerate(devices)])


def _filled(templates: Mapping[str, str], values: Sequence[Mapping[str, str]]) -> dict[str, str]:
    return {fill(name, each): fill(value, each) for each in values for name, value in templates.items()}


def _values(number: int, device: Device) -> dict[str, str]:
    return {_INDEX: str(number), **device.template_values()}


def template_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """The problems of one resource's templates."""
    for what, key, templates in _templates(resource):
        yield from _template_problems(resource, templates, f"{where}.{key}", what, key == "joined_env")
    for name in sorted(resource.joined_env.keys() & resource.env.keys()):
        yield Problem(f"{where}.joined_env.{name}", "is also set by env: remove one")


def _templates(resource: Resource) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """For variables and annotations: the word for messages, the key, and the templates by name."""
    yield "variable", "env", resource.env
    yield "variable", "joined_env", resource.joined_env
    yield "annotation", "annotations", resource.annotations


def _template_problems(
    resource: Resource, templates: Mapping[str, str], where: str, what: str, is_joined: bool
) -> Iterator[Problem]:
    for name, value in templates.items():
        field = f"{where}.{name}"
        if is_joined and placeholders(name):
            yield Problem(field, "is one variable for all devices of a container: remove the placeholder from its name")
            continue
        others = [placeholder for placeholder in placeholders(name) if placeholder != _INDEX]
        if others:
            yield Problem(field, f"{_A[what]}'s name may contain only the placeholder {{index}}, not {{{others[0]}}}")
            continue
        if what == "variable":
            message = env_name_problem(fill(name, {_INDEX: "0"}))
        else:
            message = None if name.strip() else "is empty"
        if message:
            yield Problem(field, message)
        # A container limited to one device needs no number.
        is_one = is_joined or f"{{{_INDEX}}}" in name or resource.container_limit == 1
        if not is_one and (resource.discover.methods or len(resource.devices) > 1):
            fix = "add {index} to the name or set container_limit: 1"
            if what == "variable" and resource.api == DRA:
                fix = "add {index} to the name, or move the variable to joined_env"
            elif what == "variable":
                fix = "add {index} to the name, move the variable to joined_env, or set container_limit: 1"
            yield Problem(field, f"a container may get several devices, which would all set this {what}: {fix}")
        known = {_INDEX, *resource.discover.template_names()}
        for text, placeholder in nearly_placeholders(value):
            if placeholder in known or any(placeholder in device.template_values() for device in resource.devices):
                yield Problem(field, f"{text!r} would stay as it is: write {{{placeholder}}}")
        for placeholder in dict.fromkeys(placeholders(value)):
            without = [d.id for d in resource.devices if placeholder not in {_INDEX, *d.template_values()}]
            if without:
                message = "is not a property of device {}: declare the property, or remove the placeholder"
                yield Problem(field, f"{{{placeholder}}} " + message.format(", ".join(map(repr, without))))
            if resource.discover.methods and placeholder not in known:
                message = (
                    f"the placeholder {{{placeholder}}} is unknown; discovered devices have: {', '.join(sorted(known))}"
                )
                if placeholder in _PATHS:
                    message = (
                        f"{{{placeholder}}} is ambiguous, because a discovered device may have several nodes, or none: "
                        "list the nodes in discover.nodes, this one first and not optional"
                    )
                yield Problem(field, message)


def collision_problems(placed: Sequence[tuple[str, Resource]]) -> Iterator[Problem]:
    """Variables and annotations that two resources would both set in one container.

    A collision is an error, because the kubelet keeps a random value and only logs the conflict.
    placed: the resources, each with the path of its field.
    """
    seen: dict[tuple[str, str], tuple[str, str]] = {}
    for where, resource in placed:
        reported: list[str] = []
        for what, field, template, name in _given_names(resource):
            owner = seen.setdefault((what, name), (resource.name, template))
            if owner != (resource.name, template) and template not in reported:
                reported.append(template)
                yield Problem(f"{where}.{field}", _COLLISION.format(what, name, *owner))
    # Without CDI, the kubelet also sets the variables of edits. Within one resource, Allocate
    # resolves duplicates.
    for where, resource in placed:
        if resource.injection != "device_nodes":
            continue
        for edits in (resource.container_edits, *(device.container_edits for device in resource.devices)):
            for name in dict.fromkeys(assignment.partition("=")[0] for assignment in edits.env if assignment):
                owner = seen.setdefault(("variable", name), (resource.name, "container_edits"))
                if owner[0] != resource.name:
                    yield Problem(where + ".container_edits.env", _COLLISION.format("variable", name, *owner))


def _given_names(resource: Resource) -> Iterator[tuple[str, str, str, str]]:
    """Every name that Allocate may set: "variable" or "annotation", field, template, and name."""
    for what, key, templates in _templates(resource):
        for template in templates:
            for number in range(_DISCOVERED if resource.discover.methods else len(resource.devices)):
                yield what, f"{key}.{template}", template, template.replace(f"{{{_INDEX}}}", str(number))
