"""``version``."""

from __future__ import annotations

import argparse

from ..support.version import version
from .shared import Commands, add_command


def add(commands: Commands) -> None:
    """Add the command."""
    add_command(commands, "version", run, "Print the version.")


def run(options: argparse.Namespace) -> int:
    """Print the version of the installed distribution."""
    print("node-device-plugin %s" % version())
    return 0
