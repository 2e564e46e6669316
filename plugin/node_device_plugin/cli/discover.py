"""``discover``: the devices that a configuration would find on this node."""

from __future__ import annotations

import argparse
import functools

from ..declaration.configuration_file import load
from .shared import CONFIG, OUTPUT, Commands, add_command, print_json


def add(commands: Commands) -> None:
    """Add the command."""
    add_command(commands, "discover", run, "Show the devices that a configuration would find here.", CONFIG, OUTPUT)


def run(options: argparse.Namespace) -> int:
    """Look for the devices."""
    from ..cdi import writer
    from ..devices.discovery import discover
    from ..diagnostics import discovered

    configuration = load(options.config).configuration
    resources = configuration.resources
    offered = functools.partial(writer.offered, configuration.dynamic_cdi_dir)
    data = discovered.to_data(resources, discover(resources, offered=offered))
    if options.output == "json":
        print_json(data)
    else:
        print(discovered.to_text(data))
    return 0
