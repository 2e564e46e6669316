"""``doctor``: finds the problems of this node, each with the command that fixes it."""

from __future__ import annotations

import argparse

from .shared import CONFIG, OUTPUT, RUNTIME, ask, command, option, show


@command(
    "doctor",
    CONFIG,
    OUTPUT,
    RUNTIME,
    option("--kubelet-root", metavar="DIR", help="the kubelet's --root-dir (default: the running kubelet's)"),
    examples=("doctor", "doctor -o json"),
)
def run(options: argparse.Namespace) -> int:
    """Check each link between this node's configuration and its kubelet, and print the command that fixes a problem."""
    from ..diagnostics.doctor import Doctor

    findings = ask(Doctor(options.config, options.socket, options.kubelet_root).examine())
    show(options, findings)
    return 0 if findings.is_healthy else 1
