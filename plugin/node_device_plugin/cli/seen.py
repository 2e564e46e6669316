"""``seen``: prints the variables, mounts and device nodes of its container. A proof runs ``seen`` in a test pod."""

from __future__ import annotations

import argparse
import json

from .shared import command, option


@command(
    "seen",
    option("paths", metavar="PATH", nargs="*", help="device node to report, beside variables and mounts"),
    examples=("seen /dev/ttyS0",),
    internal=True,
)
def run(options: argparse.Namespace) -> int:
    """Print, as JSON, the variables, mounts and device nodes of the container in which this command runs."""
    from ..verification import container_view

    # Print one line, because a log may separate several lines.
    print(json.dumps(container_view.own(options.paths), sort_keys=True))
    return 0
