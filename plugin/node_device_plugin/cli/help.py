"""``help``: prints the help of a command."""

from __future__ import annotations

import argparse

from .shared import command, option


@command(
    "help",
    option("words", metavar="COMMAND", nargs="*", help="command to explain (default: all)"),
    examples=("help", "help cdi check"),
)
def run(options: argparse.Namespace) -> int:
    """Print the help of a command."""
    from .main import parser

    parser().parse_args([*options.words, "--help"])
    return 0
