"""``status``: what the running plugin serves."""

from __future__ import annotations

import argparse

from ..declaration.configuration_file import kubelet_places
from .shared import CONFIG, OUTPUT, Commands, add_command, ask, show


def add(commands: Commands) -> None:
    """Add the command."""
    add_command(commands, "status", run, "What the plugin serves, and which pod holds what.", CONFIG, OUTPUT)


def run(options: argparse.Namespace) -> int:
    """Ask the plugin and the kubelet; 1 where something is wrong."""
    from ..diagnostics.status import status

    found = ask(status(kubelet_places(options.config)))
    show(options, found)
    return 0 if found.is_fine else 1
