"""``seen``: what the container has that the command runs in. A proof's pod runs it."""

from __future__ import annotations

import argparse
import json

from .shared import Commands, add_command


def add(commands: Commands) -> None:
    """Add the command."""
    command = add_command(
        commands, "seen", run, "Print, as JSON, what the container has that this runs in: a proof's pod."
    )
    command.add_argument(
        "paths", metavar="PATH", nargs="*", help="a device node to look at, beside variables and mounts"
    )


def run(options: argparse.Namespace) -> int:
    """Look at this container."""
    from ..verification import container_view

    # One line, which a log keeps together.
    print(json.dumps(container_view.own(options.paths), sort_keys=True))
    return 0
