"""The variables that Allocate adds: templates, their numbering, and the collisions among them."""

from __future__ import annotations

from typing import Dict, Iterator, List, Mapping, Sequence, Tuple

from .model import Device, Resource
from .names import env_name_problem
from .patterns import fill, placeholders
from .problems import Problem

_INDEX = "index"
#: Values that a device has without declaring them; no property may take their names.
BUILT_IN_VALUES = ("id", "path", "host_path", _INDEX)
#: Numbers that are tried for a discovered resource, whose number of devices nobody knows.
_DISCOVERED = 100
_A = {"variable": "a variable", "annotation": "an annotation"}


def allocate_env(resource: Resource, devices: Sequence[Device]) -> Dict[str, str]:
    """The variables of a container that gets ``devices`` of ``resource``.

    devices: in the order of the declaration, each once (as Resource.devices_of gives them); their numbers count from 0.
    """
    return _filled(resource.env, devices)


def allocate_annotations(resource: Resource, devices: Sequence[Device]) -> Dict[str, str]:
    """The annotations of such a container, numbered in the same way."""
    return _filled(resource.annotations, devices)


def _filled(templates: Mapping[str, str], devices: Sequence[Device]) -> Dict[str, str]:
    result = {}
    for number, device in enumerate(devices):
        values = {_INDEX: str(number), **device.template_values()}
        for name, value in templates.items():
            result[fill(name, values)] = fill(value, values)
    return result


def template_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """What is wrong with the templates of one resource."""
    yield from _template_problems(resource, resource.env, where + ".env", "variable")
    yield from _template_problems(resource, resource.annotations, where + ".annotations", "annotation")


def _template_problems(resource: Resource, templates: Mapping[str, str], where: str, what: str) -> Iterator[Problem]:
    for name, value in templates.items():
        field = "%s.%s" % (where, name)
        others = [placeholder for placeholder in placeholders(name) if placeholder != _INDEX]
        if others:
            yield Problem(field, "only {index} may stand in %s's name, not {%s}" % (_A[what], others[0]))
            continue
        if what == "variable":
            message = env_name_problem(fill(name, {_INDEX: "0"}))
        else:
            message = None if name.strip() else "is empty"
        if message:
            yield Problem(field, message)
        # A container that may have one device only needs no number.
        is_one = "{%s}" % _INDEX in name or resource.container_limit == 1
        fix = "put {index} into its name, or let a container have one device only (container_limit: 1)"
        if not is_one and resource.discover.methods:
            yield Problem(field, "%s: nobody knows how many devices will be discovered" % fix)
        elif not is_one and len(resource.devices) > 1:
            yield Problem(field, "a container that gets two devices would have this %s twice; %s" % (what, fix))
        for placeholder in dict.fromkeys(placeholders(value)):
            lacking = [d.id for d in resource.devices if placeholder not in {_INDEX, *d.template_values()}]
            if lacking:
                yield Problem(
                    field, "{%s} is no property of %s" % (placeholder, "device %s" % ", ".join(map(repr, lacking)))
                )
            known = {_INDEX, *resource.discover.template_names()}
            if resource.discover.methods and placeholder not in known:
                yield Problem(
                    field,
                    "{%s} is not known of every discovered device; known are %s"
                    % (placeholder, ", ".join(sorted(known))),
                )


def collision_problems(placed: Sequence[Tuple[str, Resource]]) -> Iterator[Problem]:
    """Variables and annotations that two resources would both set in a container that asks for both.

    The kubelet takes the first in an order by chance and only logs it, so this is an error of the declaration.
    placed: the resources, each with the path of its field.
    """
    seen: Dict[Tuple[str, str], Tuple[str, str]] = {}
    for where, resource in placed:
        reported: List[str] = []
        for what, field, template, name in _given_names(resource):
            owner = seen.setdefault((what, name), (resource.name, template))
            if owner != (resource.name, template) and template not in reported:
                reported.append(template)
                yield Problem(
                    "%s.%s" % (where, field),
                    "the %s %s is also set by %s (%s); a container may ask for both" % (what, name, *owner),
                )
    # Without CDI its edits are the kubelet's as well. Devices of one resource may repeat them: we decide which stays.
    for where, resource in placed:
        if resource.injection != "device_nodes":
            continue
        for edits in (resource.container_edits, *(device.container_edits for device in resource.devices)):
            for name in dict.fromkeys(assignment.partition("=")[0] for assignment in edits.env if assignment):
                owner = seen.setdefault(("variable", name), (resource.name, "container_edits"))
                if owner[0] != resource.name:
                    yield Problem(
                        where + ".container_edits.env",
                        "the variable %s is also set by %s (%s); a container may ask for both" % (name, *owner),
                    )


def _given_names(resource: Resource) -> Iterator[Tuple[str, str, str, str]]:
    """Every name that Allocate may give: what it is, the path of its field, its template, and the name."""
    for what, key, templates in (
        ("variable", "env", resource.env),
        ("annotation", "annotations", resource.annotations),
    ):
        for template in templates:
            for number in range(_DISCOVERED if resource.discover.methods else len(resource.devices)):
                yield what, "%s.%s" % (key, template), template, template.replace("{%s}" % _INDEX, str(number))
