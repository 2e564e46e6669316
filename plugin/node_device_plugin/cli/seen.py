"""``seen``: prints the view of its own container. A proof's pod runs this command."""

from __future__ import annotations

import argparse
import json

from .shared import command, option


@command(
    "seen", option("paths", metavar="PATH", nargs="*", help="a device node to look at, beside variables and mounts")
)
def run(options: argparse.Namespace) -> int:
    """Print, as JSON, what the container has that this runs in: a proof's pod."""
    from ..verification import container_view

    # One line, because a log may split several lines.
    print(json.dumps(container_view.own(options.paths), sort_keys=True))
    return 0
