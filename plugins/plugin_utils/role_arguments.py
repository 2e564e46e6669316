# SPDX-License-Identifier: Apache-2.0
"""Holds a host's variables to the argument specs of several roles at once, as each role does at its begin."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import yaml
from ansible.errors import AnsibleError
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from . import declaration

_ROLES = pathlib.Path(__file__).resolve().parents[2] / "roles"
# Written in C where the controller's PyYAML has that: some specs are long.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def problems(roles: Iterable[Any], variables: Mapping[str, Any], template: Callable[[Any], Any]) -> list[str]:
    """What is wrong with a host's variables, a line each.

    variables: all of the host's, by name. template: gives a value with its expressions worked out.
    Raises AnsibleError for a role that there is not.
    """
    options: dict[str, Any] = {}
    for role in roles:
        options.update(_options(str(role)))
    # The declaration is held to its own schema, which says more.
    for name in [*declaration.variables_of(options), declaration.SETTINGS]:
        options.pop(name, None)
    given = {name: variables[name] for name in options if name in variables}
    # A copy: it fills in what is left out of a default that is a list or a mapping where that stands, as None.
    validator = ArgumentSpecValidator(copy.deepcopy(options))
    validated = validator.validate(template(given), validate_role_argument_spec=True)
    return list(validated.error_messages)


def _options(role: str) -> dict[str, Any]:
    if role not in _OPTIONS:
        raise AnsibleError(f"roles: there is no role {role} with argument specs ({_ROLES / role})")
    return _OPTIONS[role]


def _read(path: pathlib.Path) -> dict[str, Any]:
    options: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # noqa: S506 (a safe one)
    return dict(options["argument_specs"]["main"]["options"])


#: Role to the options of its argument specs. Read with this module, which the strategy loads once, and not in the
#: processes that are forked off for each host.
_OPTIONS = {path.parts[-3]: _read(path) for path in sorted(_ROLES.glob("*/meta/argument_specs.yml"))}
