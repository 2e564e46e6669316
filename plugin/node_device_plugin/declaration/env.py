"""The variables that Allocate adds: templates, their numbering, and the collisions among them."""

from __future__ import annotations

from typing import Dict, Iterable, Iterator, List, Sequence, Tuple

from .model import Device, Resource
from .names import env_name_problem
from .patterns import fill, placeholders
from .problems import Problem

_INDEX = "index"
#: Values that a device has without declaring them; no property may take their names.
BUILT_IN_VALUES = ("id", "path", "host_path", _INDEX)
#: Numbers that are tried for a discovered resource, whose number of devices nobody knows.
_DISCOVERED = 100


def allocate_env(resource: Resource, devices: Sequence[Device]) -> Dict[str, str]:
    """The variables of a container that gets ``devices`` of ``resource``.

    devices: in the order of the declaration, each once (as Resource.devices_of gives them); their numbers count from 0.
    """
    variables = {}
    for number, device in enumerate(devices):
        values = {_INDEX: str(number), **device.template_values()}
        for name, value in resource.env.items():
            variables[fill(name, values)] = fill(value, values)
    return variables


def template_problems(resource: Resource, where: str) -> Iterator[Problem]:
    """What is wrong with the templates of one resource."""
    for name, value in resource.env.items():
        field = "%s.env.%s" % (where, name)
        others = [placeholder for placeholder in placeholders(name) if placeholder != _INDEX]
        if others:
            yield Problem(field, "only {index} may stand in a variable's name, not {%s}" % others[0])
            continue
        message = env_name_problem(fill(name, {_INDEX: "0"}))
        if message:
            yield Problem(field, message)
        if "{%s}" % _INDEX not in name and resource.discover.methods:
            yield Problem(field, "put {index} into its name: nobody knows how many devices will be discovered")
        elif "{%s}" % _INDEX not in name and len(resource.devices) > 1:
            yield Problem(
                field,
                "a container that gets two devices would have this variable twice; put {index} into its name",
            )
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


def collision_problems(placed: Iterable[Tuple[str, Resource]]) -> Iterator[Problem]:
    """Variables that two resources would both set in a container that asks for both.

    The kubelet takes the first in an order by chance and only logs it, so this is an error of the declaration.
    placed: the resources, each with the path of its field.
    """
    seen: Dict[str, Tuple[str, str]] = {}
    for where, resource in placed:
        reported: List[str] = []
        for template in resource.env:
            for number in range(_DISCOVERED if resource.discover.methods else len(resource.devices)):
                variable = template.replace("{%s}" % _INDEX, str(number))
                owner = seen.setdefault(variable, (resource.name, template))
                if owner != (resource.name, template) and template not in reported:
                    reported.append(template)
                    yield Problem(
                        "%s.env.%s" % (where, template),
                        "the variable %s is also set by %s (%s); a container may ask for both"
                        % (variable, owner[0], owner[1]),
                    )
