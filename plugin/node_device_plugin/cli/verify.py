"""``verify``: proves that every declared device reaches the runtime, the kubelet and a container."""

from __future__ import annotations

import argparse
import contextlib
import math

from ..declaration.configuration_file import load
from .shared import CONFIG, OUTPUT, RUNTIME, ask, command, option, show


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a number of seconds from 0 on, not {text!r}")


@command(
    "verify",
    CONFIG,
    RUNTIME,
    OUTPUT,
    option("--kubelet-root", metavar="DIR", help="the kubelet's --root-dir (default: the configuration's)"),
    option(
        "--static-pod-dir",
        metavar="DIR",
        help="where the kubelet takes static pods from: those of proofs that were killed are removed; without it no "
        "pod is made, and only those that are there are looked into",
    ),
    option("--no-static-pods", action="store_true", help="make none, and only remove those of proofs that were killed"),
    option("--kubelet-kubeconfig", metavar="FILE", help="the kubelet's own, by which it is asked how many pods fit"),
    option("--max-pods", type=int, metavar="NUMBER", help="how many pods fit, where the cluster does not answer"),
    option("--image", help="image of the proof's containers (default: the runtime's sandbox image)"),
    option("--devices", choices=("one", "all"), default="one", help="free devices that a proof asks for"),
    option(
        "--proof-pod",
        metavar="NAMESPACE/NAME",
        action="append",
        default=[],
        help="a pod that was made for the proof: look into such pods alone",
    ),
    option(
        "--plugin", metavar="TEXT", default="", help="what serves the devices, such as an image; a part of the record"
    ),
    option("--record", metavar="FILE", help='what was proven before ("proven" of an earlier -o json)'),
    option("--unproven", action="store_true", help="prove only what --record does not hold"),
    option("--timeout", type=_seconds, default=60.0, metavar="SECONDS", help="for the kubelet and each proof"),
)
def run(options: argparse.Namespace) -> int:
    """Read back from the runtime, the kubelet and a container that every declared device is really there."""
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
                kubelet_kubeconfig=options.kubelet_kubeconfig,
                max_pods=options.max_pods,
                makes_static_pods=not options.no_static_pods,
            ),
            Scope(
                devices=options.devices,
                unproven_only=options.unproven,
                record=options.record,
                timeout=options.timeout,
                plugin=options.plugin,
                proof_pods=tuple(options.proof_pod),
            ),
        )
    )
    show(options, report)
    return 1 if report.problems else 0
