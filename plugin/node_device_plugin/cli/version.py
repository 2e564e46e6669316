"""``version``: prints the plugin's version."""

from __future__ import annotations

import argparse

from ..support.version import version
from .shared import command


@command("version", examples=("version",))
def run(options: argparse.Namespace) -> int:
    """Print the version."""
    print(f"node-device-plugin {version()}")
    return 0
