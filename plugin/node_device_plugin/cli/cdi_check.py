"""``cdi check``: checks the CDI specs of this node as its runtime will read them."""

from __future__ import annotations

import argparse

from .shared import OUTPUT, RUNTIME, ask, command, option, show


@command(
    "check",
    RUNTIME,
    OUTPUT,
    option(
        "--dir", metavar="DIR", action="append", help="spec directory to check; repeatable (default: the runtime's own)"
    ),
)
def run(options: argparse.Namespace) -> int:
    """Check every CDI spec on this node, also those of other owners, by the rules of its container runtime."""
    from ..diagnostics import cdi_specs

    report = ask(cdi_specs.check(options.dir, options.socket))
    show(options, report)
    return 1 if report.problems else 0
