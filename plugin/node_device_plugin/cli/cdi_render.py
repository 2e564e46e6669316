"""``cdi render``: prints the CDI specs of a configuration."""

from __future__ import annotations

import argparse

from ..declaration import cdi
from ..declaration.configuration_file import load
from .shared import CONFIG, OUTPUT, command, print_json


@command("render", CONFIG, OUTPUT)
def run(options: argparse.Namespace) -> int:
    """Print the CDI specs of a configuration."""
    specs = cdi.render_specs(load(options.config).configuration.resources)
    if options.output == "json":
        print_json(specs)
        return 0
    for name, spec in specs.items():
        print(f"# {name}")
        print(cdi.serialise(spec), end="")
    return 0
