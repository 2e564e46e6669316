"""Reads the declaration in a file that a user names: the plugin's configuration, or variables of an inventory."""

from __future__ import annotations

from typing import Any

from ..declaration import DeclarationError, Problem, parse_configuration, variables
from ..declaration.configuration_file import document
from ..support.documents import name_of
from .shared import Failure


def read(path: str) -> variables.Declared:
    """Read a configuration file, a group_vars file or a host_vars file; ``-`` is stdin.

    Raises DeclarationError with every problem, and Failure if the file is an inventory.
    """
    data = document(path)
    if variables.SETTINGS in data or variables.variables_of(data):
        problems: list[str] = []
        found = variables.read(data, _literal, problems)
        if problems:
            raise DeclarationError([Problem(*problem.split(": ", 1)) for problem in problems])
        return found
    if any(isinstance(each, dict) and not {"hosts", "children"}.isdisjoint(each) for each in data.values()):
        raise Failure(
            f"{name_of(path)}: is an inventory: to check it, run node-device-plugin validate --inventory PATH"
        )
    return variables.Declared(parse_configuration(data), {})


def _literal(value: Any) -> Any:
    # The repr of nested mappings contains the beginning of an expression only if one of their strings does.
    if variables.is_expression(repr(value)):
        raise ValueError(
            "is an expression, which only Ansible evaluates: check the inventory with playbooks/validate.yml"
        )
    return value
