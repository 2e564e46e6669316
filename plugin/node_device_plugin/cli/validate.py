"""``validate`` and ``schema``: check a configuration or the declaration in an inventory, or describe it to editors."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Sequence

from ..support.documents import name_of
from ..support.tables import counted
from . import declared
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
def validate(options: argparse.Namespace) -> int:
    """Check a configuration file, or the declaration in a group_vars or host_vars file, and print every error in it."""
    if options.inventory:
        return _with_ansible(options.inventory)
    configuration, capacities = declared.read(options.config)
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


@command(
    "schema",
    option(
        "--of",
        choices=("variables", "configuration"),
        default="variables",
        help="which file the schema describes: one with an inventory's variables (group_vars, host_vars), or the "
        "plugin's configuration (default: %(default)s)",
    ),
    examples=("schema", "schema --of configuration"),
)
def schema(options: argparse.Namespace) -> int:
    """Print a JSON Schema (draft 2020-12) with which an editor checks and completes a declaration."""
    from ..declaration import json_schema

    known = json_schema.variables() if options.of == "variables" else json_schema.configuration()
    print(json.dumps(known, indent=2))
    return 0
