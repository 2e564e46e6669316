# SPDX-License-Identifier: Apache-2.0
"""Holds a host's variables to the argument specs of several roles at once, as each role does at its begin."""

from __future__ import annotations

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
    validated = ArgumentSpecValidator(options).validate(template(given), validate_role_argument_spec=True)
    return list(validated.error_messages)


def _options(role: str) -> dict[str, Any]:
    path = _ROLES / role / "meta" / "argument_specs.yml"
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise AnsibleError(f"roles: there is no role {role} with argument specs ({path}: {error.strerror})") from error
    options: dict[str, Any] = yaml.load(text, Loader=_LOADER)["argument_specs"]["main"]["options"]
    return options
