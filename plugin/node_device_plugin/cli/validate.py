"""``validate``: lists every problem of a configuration."""

from __future__ import annotations

import argparse

from ..declaration.configuration_file import load
from ..support.tables import counted
from .shared import CONFIG, command


@command("validate", CONFIG)
def run(options: argparse.Namespace) -> int:
    """Check a configuration file, and print every error in it."""
    resources = load(options.config).configuration.resources
    devices = sum(len(resource.devices) for resource in resources)
    print(f"{options.config}: valid: {counted(len(resources), 'resource')}, {counted(devices, 'device')}")
    return 0
