"""``cdi check``: the CDI specs of this node, as its runtime will read them."""

from __future__ import annotations

import argparse

from .shared import OUTPUT, RUNTIME, Commands, add_command, ask, show


def add(commands: Commands) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "check",
        run,
        "Check every CDI spec of this node, own and foreign, as its runtime will read it.",
        RUNTIME,
        OUTPUT,
    )
    command.add_argument(
        "--dir", metavar="DIR", action="append", help="a spec directory, once or more (default: the running runtime's)"
    )


def run(options: argparse.Namespace) -> int:
    """Check the specs; 1 where one has a problem."""
    from ..diagnostics import cdi_specs

    report = ask(cdi_specs.check(options.dir, options.socket))
    show(options, report)
    return 1 if report.problems else 0
