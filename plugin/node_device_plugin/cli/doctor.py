"""``doctor``: what is wrong on this node, and the command that fixes it."""

from __future__ import annotations

import argparse

from .shared import CONFIG, OUTPUT, Commands, add_command, ask, show


def add(commands: Commands) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "doctor",
        run,
        "Walk the chain on this node, say what is wrong and the command that fixes it.",
        CONFIG,
        OUTPUT,
    )
    command.add_argument(
        "--socket", metavar="PATH", help="the runtime's CRI socket (default: the one that the running kubelet uses)"
    )
    command.add_argument("--kubelet-root", metavar="DIR", help="the kubelet's --root-dir (default: the running one's)")


def run(options: argparse.Namespace) -> int:
    """Examine the node; 1 where something is wrong."""
    from ..diagnostics.doctor import Doctor

    findings = ask(Doctor(options.config, options.socket, options.kubelet_root).examine())
    show(options, findings)
    return 0 if findings.is_healthy else 1
