"""``runtime``: shows the CDI settings of the running container runtime."""

from __future__ import annotations

import argparse

from .shared import OUTPUT, RUNTIME, ask, command, option, show


@command(
    "runtime",
    RUNTIME,
    OUTPUT,
    option(
        "--ended", metavar="ID", nargs="+", default=(), help="containers whose exit to report, with -o json or yaml"
    ),
    examples=("runtime", "runtime --socket /run/crio/crio.sock -o json"),
)
def run(options: argparse.Namespace) -> int:
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
