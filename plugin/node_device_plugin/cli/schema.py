"""``schema``: prints a JSON Schema of the declaration, for editors."""

from __future__ import annotations

import argparse
import json

from .shared import command, option


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
def run(options: argparse.Namespace) -> int:
    """Print a JSON Schema (draft 2020-12) with which an editor checks and completes a declaration."""
    from ..declaration import json_schema

    known = json_schema.variables() if options.of == "variables" else json_schema.configuration()
    print(json.dumps(known, indent=2))
    return 0
