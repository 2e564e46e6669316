"""``cdi render``: prints the CDI specs of a configuration."""

from __future__ import annotations

import argparse

from ..declaration import cdi
from . import declared
from .shared import CONFIG_OR_STDIN, OUTPUT, command, print_data


@command("render", CONFIG_OR_STDIN, OUTPUT, examples=("cdi render trial.yaml", "cdi render -o json"))
def run(options: argparse.Namespace) -> int:
    """Print the CDI specs of a configuration."""
    resources = declared.read(options.config).configuration.resources
    specs = cdi.render_specs(resources)
    if options.output != "text":
        print_data(options, specs)
        return 0
    for name, spec in specs.items():
        print(f"# {name}")
        print(cdi.serialise(spec), end="")
    by_plugin = [resource.cdi_kind for resource in resources if resource.dynamic_cdi]
    for kind in by_plugin:
        print(f"# {kind}: the running plugin writes this spec")
    if not specs and not by_plugin:
        print("the configuration has no device that needs a CDI spec")
    return 0
