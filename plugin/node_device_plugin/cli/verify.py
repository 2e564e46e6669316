"""``verify``: proves that every declared device reaches the runtime, the kubelet and a container.

A proof runs ``seen`` in a test pod, which prints the variables, mounts and device nodes of its container.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math

from . import declared
from .shared import CONFIG_OR_STDIN, OUTPUT, RUNTIME, ask, command, option, show


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"must be a number of seconds, 0 or more, not {text!r}")


@command(
    "verify",
    CONFIG_OR_STDIN,
    RUNTIME,
    OUTPUT,
    option("--kubelet-root", metavar="DIR", help="the kubelet's --root-dir (default: as in the configuration)"),
    option(
        "--static-pod-dir",
        metavar="DIR",
        help="the kubelet's static pod directory, where a proof creates its pod and removes pods of killed proofs; "
        "if left out, only running containers are checked; empty if the kubelet has none",
    ),
    option(
        "--no-static-pods",
        dest="makes_static_pods",
        action="store_false",
        help="create no static pods; only remove static pods that killed proofs left",
    ),
    option("--kubelet-kubeconfig", metavar="FILE", help="the kubelet's kubeconfig, to count the node's free pod slots"),
    option("--max-pods", type=int, metavar="NUMBER", help="the kubelet's maxPods, if the API server does not answer"),
    option("--image", help="image of the test containers (default: the runtime's sandbox image)"),
    option(
        "--devices",
        choices=("one", "all"),
        default="one",
        help="how many free devices or shares a test container requests (default: %(default)s)",
    ),
    option(
        "--proof-pod",
        dest="proof_pods",
        metavar="NAMESPACE/NAME",
        action="append",
        default=[],
        help="pod that was created for the proof; repeatable; if set, only these pods are checked",
    ),
    option(
        "--plugin", metavar="TEXT", default="", help="text that identifies the plugin in the record, such as its image"
    ),
    option(
        "--invocation",
        metavar="ID",
        help="the InvocationID of the plugin's service at its start; if the service has another one now, verify fails",
    ),
    option("--record", metavar="FILE", help='earlier results: the value of "proven" from -o json'),
    option(
        "--unproven",
        dest="unproven_only",
        action="store_true",
        help="check only resources that --record does not list as proven",
    ),
    option("--timeout", type=_seconds, default=60.0, metavar="SECONDS", help="limit for each step (default: 60)"),
    examples=("verify", "verify --static-pod-dir /etc/kubernetes/manifests --devices all"),
)
def verify(options: argparse.Namespace) -> int:
    """Check with the runtime, the kubelet and a container that every declared device is available."""
    from ..diagnostics.runtime_service import cri_socket
    from ..verification import verify as verification
    from ..verification.scope import Scope

    configuration = declared.read(options.config).configuration
    # The options have the names of the fields.
    given = {
        **vars(options),
        "runtime_socket": cri_socket(options.socket),
        "kubelet_root": options.kubelet_root or configuration.kubelet_root_dir,
        "proof_pods": tuple(options.proof_pods),
    }
    scope = Scope(**{name: given[name] for name in Scope._fields})
    report = ask(verification.verify(configuration, scope))
    show(options, report.to_data(), report.to_text())
    return 1 if report.problems else 0


@command(
    "seen",
    option("paths", metavar="PATH", nargs="*", help="device node to report, beside variables and mounts"),
    examples=("seen /dev/ttyS0",),
    internal=True,
)
def seen(options: argparse.Namespace) -> int:
    """Print, as JSON, the variables, mounts and device nodes of the container in which this command runs."""
    from ..verification import container_view

    # Print one line, because a log may separate several lines.
    print(json.dumps(container_view.own(options.paths), sort_keys=True))
    return 0
