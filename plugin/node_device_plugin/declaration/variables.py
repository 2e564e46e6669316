"""Reads a declaration from an inventory's variables, for the roles and for the command ``validate``.

All variables of a host whose names begin with PREFIX are merged into one list of resources and fixed capacities.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Callable, NamedTuple, Optional

from . import shorthands
from .model import DRA, Configuration
from .parse import is_static, parse_capacities, parse_configuration
from .problems import DeclarationError, shown
from .schema import VARIABLES

#: All host variables with this prefix together form the host's declaration.
PREFIX = VARIABLES[0]
#: The variable with the rest of the plugin's configuration.
SETTINGS = VARIABLES[1]

#: The beginnings of text that Ansible evaluates: an expression, a statement, a comment.
EXPRESSIONS = ("{{", "{%", "{#")

# An element of the merged list in the problems of parse.
_ELEMENT = re.compile(r"(?<![\w.])resources\[(\d+)\]")
#: Stands for a value with an expression that fails.
FAILED = object()
# More levels than a declaration has. A limit is needed because a list may contain itself.
_DEEPEST = 8

#: Evaluates the expressions in a value, or raises.
Template = Callable[[Any], Any]
#: Words the error of the expression in a field: the problem, or None if the error is none.
Failure = Callable[[str, Exception], Optional[str]]


def failure(where: str, error: Exception) -> str:
    """The problem of an expression that fails."""
    return f"{where}: {error}"


class Declared(NamedTuple):
    """What the variables declare. capacities: static extended resource to its capacity."""

    configuration: Configuration
    capacities: dict[str, int]


def variables_of(names: Iterable[Any]) -> list[str]:
    """The names of the declaration's variables, sorted to ignore the inventory's order."""
    return sorted(name for name in names if isinstance(name, str) and name.startswith(PREFIX))


def read(
    variables: Mapping[Any, Any],
    template: Template,
    problems: list[str],
    settings: Any = None,
    failure: Failure = failure,
    forced: Mapping[str, Any] | None = None,
    of_profile: bool = False,
) -> Declared:
    """Read a host's declaration: the union of its variables. Adds a line to ``problems`` for each problem.

    variables: all of the host's variables, by name.
    settings: the plugin's configuration apart from resources; None means that of the variables.
    forced: settings that override those of the user. of_profile: whether nobody knows the nodes. Their devices are then
    optional, and are injected without CDI, unless the declaration says otherwise.
    """
    # The elements with devices and the fixed capacities, by their origin: variable and position.
    served: dict[str, Any] = {}
    fixed: dict[str, Any] = {}
    for name in variables_of(variables):
        value, failed = worked_out(variables[name], name, template, failure)
        problems.extend(failed)
        if value is FAILED:
            continue
        if not isinstance(value, list):
            hint = " (write [] for no resources)" if value is None else ""
            problems.append(f"{name}: must be a list of resources, not {shown(value)}{hint}")
            continue
        for position, item in enumerate(value):
            if item is not FAILED:
                (fixed if is_static(item) else served)[f"{name}[{position}]"] = item

    if settings is None and SETTINGS in variables:
        settings, failed = worked_out(variables[SETTINGS], SETTINGS, template, failure)
        problems.extend(failed)
    settings = None if settings is FAILED else plain(settings)
    if not (settings is None or isinstance(settings, dict)):
        problems.append(f"{SETTINGS}: must be a mapping of the plugin's settings, not {shown(settings)}")
        settings = None
    if settings and "resources" in settings:
        problems.append(
            f"{SETTINGS}.resources: must not be set: declare resources in {PREFIX} or in variables whose names begin "
            "with it"
        )
    raw = {**(settings or {}), **(forced or {})}
    raw["resources"] = [_of_profile(item, raw.get("api")) if of_profile else item for item in served.values()]
    found = Declared(parse_configuration({"resources": []}), {})
    try:
        found = found._replace(configuration=parse_configuration(raw, has_names=True))
    except DeclarationError as error:
        problems.extend(_in_their_variables(error, served))
    named = ((item.get("name") if isinstance(item, dict) else None, origin) for origin, item in served.items())
    try:
        places = {name: origin for name, origin in named if isinstance(name, str)}
        found = found._replace(capacities=parse_capacities(list(fixed.values()), places))
    except DeclarationError as error:
        problems.extend(_in_their_variables(error, fixed))
    return found


def _of_profile(item: Any, api: Any) -> Any:
    """A resource with the defaults of a profile. Anything that is no resource stays, so that it is a problem.

    api: the api of a resource that sets none; None for a device plugin.
    """
    if not isinstance(item, dict):
        return item
    devices = item.get("devices")
    if isinstance(devices, list):
        # The short form of a device is a path. A text of another form stays, so that it is a problem.
        long = [shorthands.DEVICE.long(each) or each if isinstance(each, str) else each for each in devices]
        optional = [{"required": False, **each} if isinstance(each, dict) else each for each in long]
        item = {**item, "devices": optional}
    # A DRA driver gives devices only by CDI names.
    return item if (item.get("api") or api) == DRA else {"injection": "device_nodes", **item}


def worked_out(raw: Any, name: str, template: Template, failure: Failure = failure) -> tuple[Any, list[str]]:
    """A variable's value, and one line for each expression that fails.

    A value that fails becomes FAILED. In a list, only the elements that fail do, so that the others are still checked.
    """
    try:
        return plain(template(raw)), []
    except Exception as error:  # an expression may fail in any way
        if not isinstance(raw, list):
            found = list(_failures(raw, name, template, failure)) or [failure(name, error)]
            return FAILED, list(filter(None, found))
    value: list[Any] = []
    lines: list[str] = []
    for position, item in enumerate(raw):
        found = list(_failures(item, f"{name}[{position}]{_label(item)}", template, failure))
        lines += filter(None, found)
        value.append(FAILED if found else plain(template(item)))
    return value, lines


def is_expression(text: str) -> bool:
    """Whether Ansible evaluates the text."""
    return any(begin in text for begin in EXPRESSIONS)


def has_failed(value: Any) -> bool:
    """Whether a result of worked_out, or an element of it, stands for a failed expression."""
    return value is FAILED or (isinstance(value, list) and any(each is FAILED for each in value))


def _failures(
    raw: Any, where: str, template: Template, failure: Failure, levels: int = _DEEPEST
) -> Iterator[str | None]:
    """One line for each field whose expression fails, at most ``levels`` levels deep."""
    try:
        template(raw)
        return
    except Exception as error:
        failed = error
    inner: list[tuple[str, Any]] = []
    if levels and isinstance(raw, Mapping):
        inner = [(f"{where}.{key}", item) for key, item in raw.items()]
    elif levels and isinstance(raw, list):
        inner = [(f"{where}[{position}]{_label(item)}", item) for position, item in enumerate(raw)]
    found = [line for place, item in inner for line in _failures(item, place, template, failure, levels - 1)]
    yield from found or [failure(where, failed)]


def _label(item: Any) -> str:
    """The element's name as the schema's errors show it; empty if it is an expression."""
    name = item.get("name", item.get("id")) if isinstance(item, Mapping) else None
    return f" ({name})" if isinstance(name, str) and not is_expression(name) else ""


def _in_their_variables(error: DeclarationError, elements: Iterable[str]) -> Iterator[str]:
    """The problems. Each names its place in the inventory's variable, not in the merged list."""
    origins = list(elements)
    for problem in error.problems:
        variable = "" if _ELEMENT.match(problem.where) else SETTINGS + "."
        yield variable + _ELEMENT.sub(lambda match: origins[int(match.group(1))], str(problem))


def plain(value: Any) -> Any:
    """Convert ``value`` from Ansible's types to dict, list, str, int, float, bool and None."""
    if isinstance(value, Mapping):
        return {plain(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return value if type(value) is kind else kind.__str__(value) if kind is str else kind(value)
    return value
