"""``holders``: which pod holds which device."""

from __future__ import annotations

import argparse
import sys

from .shared import KUBELET, OUTPUT, Commands, Failure, add_command, add_device_plugin_dir, ask, print_json


def add(commands: Commands) -> None:
    """Add the command."""
    command = add_command(commands, "holders", run, "Which pod holds which device.", KUBELET, OUTPUT)
    command.add_argument("--cdi-dir", metavar="DIR", help="dynamic_cdi_dir of the plugin, where it is not /var/run/cdi")
    add_device_plugin_dir(command)


def run(options: argparse.Namespace) -> int:
    """Ask the kubelet, or read its checkpoint."""
    from ..cdi.directories import DEFAULT_DIRECTORIES
    from ..kubelet import queries

    specs = [*DEFAULT_DIRECTORIES, *([options.cdi_dir] if options.cdi_dir else [])]
    state = ask(queries.holders(options.kubelet_root, options.device_plugin_dir, specs))
    if options.output == "json":
        print_json(state)
        return 0
    if state["source"] == "none":
        raise Failure("no kubelet answers below %s, so nobody says who holds what" % options.kubelet_root)
    if state["source"] == "checkpoint":
        print("no kubelet answers: its checkpoint says, by the pods' uid, who holds what", file=sys.stderr)
    for held in state["held"]:
        print("%(namespace)s/%(pod)s %(container)s %(resource)s %(device)s" % held)
    if not state["held"]:
        print("no device is held")
    return 0
