"""``cdi check``: checks the CDI specs of this node as its runtime will read them."""

from __future__ import annotations

import argparse

from .shared import OUTPUT, RUNTIME, ask, command, option, show


@command(
    "check",
    RUNTIME,
    OUTPUT,
    option(
        "--dir", metavar="DIR", action="append", help="a spec directory, once or more (default: the running runtime's)"
    ),
)
def run(options: argparse.Namespace) -> int:
    """Check every CDI spec of this node, own and foreign, as its runtime will read it."""
    from ..diagnostics import cdi_specs

    report = ask(cdi_specs.check(options.dir, options.socket))
    show(options, report)
    return 1 if report.problems else 0
