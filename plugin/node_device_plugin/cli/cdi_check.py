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
    examples=("cdi check", "cdi check --dir /etc/cdi -o json"),
)
def run(options: argparse.Namespace) -> int:
    """Check every CDI spec on this node, of every owner, against the rules of its container runtime."""
    from ..diagnostics import cdi_specs, runtime_service

    report = ask(cdi_specs.check(options.dir, runtime_service.cri_socket(options.socket)))
    show(options, report)
    return 1 if report.problems else 0
