"""``validate``: everything that is wrong with a configuration."""

from __future__ import annotations

import argparse

from ..declaration.configuration_file import load
from .shared import CONFIG, Commands, add_command


def add(commands: Commands) -> None:
    """Add the command."""
    add_command(commands, "validate", run, "Check a configuration and say everything that is wrong with it.", CONFIG)


def run(options: argparse.Namespace) -> int:
    """Read the configuration."""
    resources = load(options.config).configuration.resources
    devices = sum(len(resource.devices) for resource in resources)
    print("%s: valid: %d resources, %d devices" % (options.config, len(resources), devices))
    return 0
