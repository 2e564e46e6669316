"""``status``, ``doctor`` and ``runtime``: show the served devices, this node's problems and its runtime's settings."""

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


@command(
    "runtime",
    RUNTIME,
    OUTPUT,
    option(
        "--ended", metavar="ID", nargs="+", default=(), help="containers whose exit to report, with -o json or yaml"
    ),
    examples=("runtime", "runtime --socket /run/crio/crio.sock -o json"),
)
def runtime(options: argparse.Namespace) -> int:
    """Print the CDI settings that the running container runtime uses."""
    from ..diagnostics.runtime_service import cri_socket
    from ..runtime import queries

    socket = cri_socket(options.socket)
    state = ask(queries.runtime(socket))
    if options.output != "text":
        state["containers"] = ask(queries.running_containers(socket))
        if options.ended:
            state["ended"] = ask(queries.ended_containers(socket, options.ended))
    enabled = {True: "on", False: "off", None: "not reported by this runtime"}[state["cdi"]["enabled"]]
    enabled = "always on" if state["cdi"]["always_on"] else enabled
    directories = ", ".join(state["cdi"]["spec_dirs"] or ["unknown"])
    show(options, state, "{name} {version}".format(**state), f"CDI {enabled}, spec directories {directories}")
    return 0
