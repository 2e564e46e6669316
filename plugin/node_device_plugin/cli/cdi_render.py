"""``cdi render``: the CDI specs of a configuration."""

from __future__ import annotations

import argparse

from ..declaration import cdi
from ..declaration.configuration_file import load
from .shared import CONFIG, OUTPUT, Commands, add_command, print_json


def add(commands: Commands) -> None:
    """Add the command."""
    add_command(commands, "render", run, "Print the CDI specs of a configuration.", CONFIG, OUTPUT)


def run(options: argparse.Namespace) -> int:
    """Render the specs."""
    specs = cdi.render_specs(load(options.config).configuration.resources)
    if options.output == "json":
        print_json(specs)
        return 0
    for name, spec in specs.items():
        print("# %s" % name)
        print(cdi.serialise(spec), end="")
    return 0
