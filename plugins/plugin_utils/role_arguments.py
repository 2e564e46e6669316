# SPDX-License-Identifier: Apache-2.0
"""Checks a host's variables against the argument specs of several roles, before the roles run."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.common.parameters import DEFAULT_TYPE_VALIDATORS

from ...plugin.node_device_plugin.declaration.problems import shown
from . import declaration

_ROLES = pathlib.Path(__file__).resolve().parents[2] / "roles"
# The types of argument specs that are checked, with their names in messages.
_TYPES = {
    "bool": "true or false",
    "dict": "a mapping",
    "float": "a number",
    "int": "a whole number",
    "list": "a list",
    "path": "a path",
    "str": "text",
}
# PyYAML's C loader is faster, and some specs are long.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def checked(
    roles: Iterable[Any], variables: Mapping[str, Any], template: Callable[[Any], Any], failure: declaration.Failure
) -> tuple[list[str], dict[str, Any]]:
    """Return one line for each wrong variable of a host, and the values of the roles' variables.

    variables: the host's variables by name. template: evaluates the expressions in a value.
    failure: returns the message for a failed expression; None to skip the variable.
    Raises AnsibleError if a role does not exist.
    """
    options: dict[str, Any] = {}
    for role in roles:
        if role not in OPTIONS:
            raise AnsibleError(
                f"roles: {role} is not a role of this collection with argument specs ({_ROLES / str(role)}): use "
                f"{', '.join(OPTIONS)}"
            )
        options.update(OPTIONS[role])
    # Skip the declaration, because the plugin's schema has better error messages.
    for name in [*declaration.variables_of(options), declaration.SETTINGS]:
        options.pop(name, None)
    given = {name: variables[name] for name in options if name in variables}
    lines: list[str | None] = []
    try:
        values = template(given)
    except Exception:  # an expression may fail in any way
        values = {}
        for name, raw in given.items():
            try:
                values[name] = template(raw)
            except Exception as error:
                lines.append(failure(name, error))
                del options[name]
    values = declaration.plain(values)
    for name, value in list(values.items()):
        found = list(_of_type(name, value, options[name]))
        if found:
            lines += found
            del options[name], values[name]
    # Copy the options, because the validator writes into their defaults.
    validated = ArgumentSpecValidator(copy.deepcopy(options)).validate(values, validate_role_argument_spec=True)
    return [*filter(None, lines), *validated.error_messages], validated.validated_parameters


def _of_type(where: str, value: Any, option: Mapping[str, Any]) -> Iterator[str]:
    """Yield one line for each part of a value that has another type than its argument spec.

    Ansible's own messages contain names of Python's types, and some of them no name of a variable.
    """
    kind = option.get("type", "str")
    if kind not in _TYPES or (value is None and option.get("default") is None):
        return
    try:
        if value is None or (kind in ("str", "path") and isinstance(value, (dict, list))):
            raise TypeError
        value = DEFAULT_TYPE_VALIDATORS[kind](value)
    except (TypeError, ValueError):
        yield f"{where}: must be {_TYPES[kind]}, not {shown(value)}"
        return
    if kind == "list" and "elements" in option:
        for position, item in enumerate(value):
            yield from _of_type(f"{where}[{position}]", item, {**option, "type": option["elements"]})
    elif kind == "dict":
        for key, inner in (option.get("options") or {}).items():
            if value.get(key) is not None:
                yield from _of_type(f"{where}.{key}", value[key], inner)


def _read(path: pathlib.Path) -> dict[str, Any]:
    options: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 (a safe one)
    return dict(options["argument_specs"]["main"]["options"])


#: Maps each role to the options of its argument specs. The strategy imports this module before it forks a process for
#: each host, so each file is read only once.
OPTIONS = {path.parts[-3]: _read(path) for path in sorted(_ROLES.glob("*/meta/argument_specs.yml"))}
