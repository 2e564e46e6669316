"""Static extended resources: fixed capacities of a node that no plugin serves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from . import schema
from .problems import DeclarationError, Problem, element


def is_static(item: Any) -> bool:
    """Whether an element is a fixed capacity. ``capacity: null`` (a missing value) also counts."""
    return isinstance(item, dict) and "capacity" in item


def parse_static_resources(raw: Sequence[Any], where: str, plugins: Mapping[str, str]) -> dict[str, int]:
    """Parse the elements for which is_static is true. Returns resource to capacity, in their order.

    where: the name of the list in messages.
    plugins: names of resources with devices, each with its place. No name may be in both groups.
    Raises DeclarationError with all problems.
    """
    problems: list[Problem] = []
    field = schema.Field("list", "", elements="dict", fields=schema.STATIC_RESOURCE)
    seen: dict[str, str] = dict(plugins)
    capacities: dict[str, int] = {}
    for position, item in enumerate(schema.normalise(raw, field, where, problems)):
        name, capacity = item["name"], item["capacity"]
        place = element(where, position, name)
        if name and seen.setdefault(name, place) != place:
            problems.append(Problem(place + ".name", f"is already declared as {seen[name]}: remove or rename one"))
        capacities[name] = capacity
    if problems:
        raise DeclarationError(problems)
    return capacities
