"""``verify``: every declared device is really there, up to a container."""

from __future__ import annotations

import argparse
import contextlib
import math

from ..declaration.configuration_file import load
from .shared import CONFIG, OUTPUT, RUNTIME, Commands, add_command, ask, show


def add(commands: Commands) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "verify",
        run,
        "Read back from the runtime, the kubelet and a container that every declared device is really there.",
        CONFIG,
        RUNTIME,
        OUTPUT,
    )
    command.add_argument(
        "--kubelet-root", metavar="DIR", help="the kubelet's --root-dir (default: the configuration's)"
    )
    command.add_argument("--static-pod-dir", metavar="DIR", help="where the kubelet takes static pods from")
    command.add_argument("--image", help="image of the proof's containers (default: the runtime's sandbox image)")
    command.add_argument("--devices", choices=("one", "all"), default="one", help="free devices that a proof asks for")
    command.add_argument("--record", metavar="FILE", help='what was proven before ("proven" of an earlier -o json)')
    command.add_argument("--unproven", action="store_true", help="prove only what --record does not hold")
    command.add_argument(
        "--timeout", type=_seconds, default=60.0, metavar="SECONDS", help="for the kubelet and each proof"
    )


def run(options: argparse.Namespace) -> int:
    """Prove the declaration; 1 where something failed."""
    from ..verification.verify import Node, Scope, verify

    configuration = load(options.config).configuration
    report = ask(
        verify(
            configuration,
            Node(
                runtime_socket=options.socket,
                kubelet_root=options.kubelet_root or configuration.kubelet_root_dir,
                static_pod_dir=options.static_pod_dir,
                image=options.image,
            ),
            Scope(
                devices=options.devices, unproven_only=options.unproven, record=options.record, timeout=options.timeout
            ),
        )
    )
    show(options, report)
    return 1 if report.problems else 0


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError("must be a number of seconds from 0 on, not %r" % text)
