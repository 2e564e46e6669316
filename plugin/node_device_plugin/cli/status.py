"""``status``: shows the served devices and their holders."""

from __future__ import annotations

import argparse

from ..declaration.configuration_file import kubelet_places
from .shared import CONFIG, OUTPUT, ask, command, show


@command("status", CONFIG, OUTPUT, examples=("status", "status -o json"))
def run(options: argparse.Namespace) -> int:
    """Show the devices that the plugin serves, with their health and the pods that hold them."""
    from ..diagnostics.status import status

    found = ask(status(kubelet_places(options.config)))
    show(options, found)
    return 0 if found.is_fine else 1
