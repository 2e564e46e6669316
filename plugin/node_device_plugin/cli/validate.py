"""``validate``: lists every problem of a configuration."""

from __future__ import annotations

import argparse

from ..declaration.configuration_file import load
from ..support.documents import name_of
from ..support.tables import counted
from .shared import CONFIG_OR_STDIN, command


@command("validate", CONFIG_OR_STDIN, examples=("validate", "validate trial.yaml", "validate -    # reads stdin"))
def run(options: argparse.Namespace) -> int:
    """Check a configuration file, and print every error in it."""
    resources = load(options.config).configuration.resources
    devices = sum(len(resource.devices) for resource in resources)
    counts = f"{counted(len(resources), 'resource')}, {counted(devices, 'device')}"
    print(f"{name_of(options.config)}: valid: {counts}")
    return 0
