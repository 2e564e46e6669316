"""``validate``: lists every problem of a configuration, or of the declaration in a file of an inventory."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..declaration import parse_configuration
from ..declaration.configuration_file import document
from ..support.documents import name_of
from ..support.tables import counted
from .shared import CONFIG_OR_STDIN, Failure, command, option


@command(
    "validate",
    CONFIG_OR_STDIN,
    option(
        "--inventory",
        metavar="PATH",
        action="append",
        help="check all hosts of an inventory with Ansible instead of a file; may be repeated",
    ),
    examples=(
        "validate",
        "validate trial.yaml",
        "validate group_vars/workers/devices.yml",
        "validate --inventory inventories/production",
        "validate -    # stdin",
    ),
)
def run(options: argparse.Namespace) -> int:
    """Check a configuration file, or the declaration in a group_vars or host_vars file, and print every error in it."""
    from ..declaration import variables

    if options.inventory:
        return _with_ansible(options.inventory)
    data = document(options.config)
    capacities: Mapping[str, int] = {}
    if variables.SETTINGS in data or variables.variables_of(data):
        problems: list[str] = []
        configuration, capacities = variables.read(data, _literal, problems)
        for problem in problems:
            print(f"node-device-plugin: {problem}", file=sys.stderr)
        if problems:
            return 1
    elif any(map(_is_group, data.values())):
        raise Failure(
            f"{name_of(options.config)}: is an inventory: to check it, run node-device-plugin validate --inventory PATH"
        )
    else:
        configuration = parse_configuration(data)
    resources = len(configuration.resources) + len(capacities)
    devices = sum(len(resource.devices) for resource in configuration.resources)
    counts = f"{counted(resources, 'resource')}, {counted(devices, 'device')}"
    if any(resource.discover.methods for resource in configuration.resources):
        counts += ", and those that the plugin discovers"
    print(f"{name_of(options.config)}: valid: {counts}")
    return 0


def _with_ansible(inventories: Sequence[str]) -> int:
    """Run the collection's playbook validate.yml, which prints every problem of every host."""
    missing = next((path for path in inventories if "," not in path and not os.path.exists(path)), None)
    if missing is not None:
        raise Failure(f"{missing}: no such inventory")
    program = shutil.which("ansible-playbook")
    if program is None:
        raise Failure(
            "ansible-playbook is not in PATH: run this command where ansible-core and the collection "
            "nodedevices.kubernetes are installed"
        )
    paths = [f"--inventory={path}" for path in inventories]
    return 1 if subprocess.run([program, *paths, "nodedevices.kubernetes.validate"], check=False).returncode else 0


def _is_group(value: Any) -> bool:
    return isinstance(value, dict) and not {"hosts", "children"}.isdisjoint(value)


def _literal(value: Any) -> Any:
    # The repr of nested mappings contains {{ or {% only if one of their strings contains the same text.
    if any(begin in repr(value) for begin in ("{{", "{%")):
        raise ValueError(
            "is an expression, which only Ansible evaluates: check the inventory with playbooks/validate.yml"
        )
    return value
