"""Static extended resources: fixed capacities of a node, which no plugin serves."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Sequence

from . import names, schema
from .problems import DeclarationError, Problem


def is_static(item: Any) -> bool:
    """Whether an element of a declaration is a fixed capacity. ``capacity: null`` is one, too: one that is missing."""
    return isinstance(item, dict) and "capacity" in item


def parse_static_resources(raw: Sequence[Any], where: str, plugins: Mapping[str, str]) -> Dict[str, int]:
    """Read the elements for which is_static: extended resource to capacity, in their order.

    where: what the list is called in messages.
    plugins: resources that are declared with devices, each with its place; a name is one or the other.
    Raises DeclarationError with all problems.
    """
    problems: List[Problem] = []
    field = schema.Field("list", "", elements="dict", fields=schema.STATIC_RESOURCE)
    seen: Dict[str, str] = dict(plugins)
    capacities: Dict[str, int] = {}
    for position, item in enumerate(schema.normalise(raw, field, where, problems)):
        name, capacity = item["name"], item["capacity"]
        place = "%s[%d]%s" % (where, position, " (%s)" % name if name else "")
        message = _name_problem(name, place, seen)
        if message:
            problems.append(Problem(place + ".name", message))
        elif name is not None and capacity is not None:
            capacities[name] = capacity
    if problems:
        raise DeclarationError(problems)
    return capacities


def _name_problem(name: Optional[str], place: str, seen: Dict[str, str]) -> Optional[str]:
    if name is None:
        return None
    if seen.setdefault(name, place) != place:
        return "is declared already, as %s" % seen[name]
    return names.resource_name_problem(name)
