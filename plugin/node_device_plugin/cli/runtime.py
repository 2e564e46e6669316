"""``runtime``: shows the CDI settings of the running container runtime."""

from __future__ import annotations

import argparse

from .shared import OUTPUT, RUNTIME, ask, command, option, print_json


@command(
    "runtime",
    RUNTIME,
    OUTPUT,
    option("--ended", metavar="ID", nargs="+", default=(), help="containers whose exit to report, with -o json"),
)
def run(options: argparse.Namespace) -> int:
    """Print the CDI settings that the running container runtime uses."""
    from ..runtime import queries

    state = ask(queries.runtime(options.socket))
    if options.output == "json":
        state["containers"] = ask(queries.running_containers(options.socket))
        if options.ended:
            state["ended"] = ask(queries.ended_containers(options.socket, options.ended))
        print_json(state)
        return 0
    print("{name} {version}".format(**state))
    enabled = {True: "on", False: "off", None: "not reported by this runtime"}[state["cdi"]["enabled"]]
    enabled = "always on" if state["cdi"]["always_on"] else enabled
    print("CDI {}, spec directories {}".format(enabled, ", ".join(state["cdi"]["spec_dirs"] or ["unknown"])))
    return 0
