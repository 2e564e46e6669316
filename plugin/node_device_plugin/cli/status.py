"""``status`` and ``doctor``: show the served devices and their holders, and find the problems of this node."""

from __future__ import annotations

import argparse

from ..declaration.configuration_file import kubelet_places
from .shared import CONFIG, OUTPUT, RUNTIME, ask, command, option, show


@command("status", CONFIG, OUTPUT, examples=("status", "status -o json"))
def status(options: argparse.Namespace) -> int:
    """Show the devices that the plugin serves, with their health and the pods that hold them."""
    from ..diagnostics import status as diagnosis

    found = ask(diagnosis.status(kubelet_places(options.config)))
    show(options, found.to_data(), found.to_text())
    return 0 if found.is_fine else 1


@command(
    "doctor",
    CONFIG,
    OUTPUT,
    RUNTIME,
    option("--kubelet-root", metavar="DIR", help="the kubelet's --root-dir (default: the running kubelet's)"),
    examples=("doctor", "doctor -o json"),
)
def doctor(options: argparse.Namespace) -> int:
    """Check each link between this node's configuration and its kubelet, and print the command that fixes a problem."""
    from ..diagnostics.doctor import Doctor

    findings = ask(Doctor(options.config, options.socket, options.kubelet_root).examine())
    show(options, findings.to_data(), findings.to_text())
    return 0 if findings.is_healthy else 1
