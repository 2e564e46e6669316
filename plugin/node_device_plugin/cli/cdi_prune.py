"""``cdi prune``: remove the CDI specs that the plugin wrote for discovered devices which no pod holds."""

from __future__ import annotations

import argparse

from .shared import KUBELET, OUTPUT, Commands, Failure, add_command, add_device_plugin_dir, ask, print_json


def add(commands: Commands) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "prune",
        run,
        "Take away what the plugin, which must not run any more, wrote for discovered devices, unless a pod holds it.",
        KUBELET,
        OUTPUT,
    )
    command.add_argument("--dir", metavar="DIR", default="/var/run/cdi", help="where it wrote (default: %(default)s)")
    add_device_plugin_dir(command)


def run(options: argparse.Namespace) -> int:
    """Remove the specs, and their directory when it is empty."""
    from ..cdi import writer
    from ..kubelet import queries

    state = ask(queries.holders(options.kubelet_root, options.device_plugin_dir))
    held = [writer.Held(each["resource"], each["device"]) for each in state["held"]]
    try:
        removed = writer.prune([], held, options.dir)
        writer.remove_directory(options.dir)
    except OSError as error:
        raise Failure("%s: %s" % (options.dir, error.strerror)) from error
    data = {"removed": removed, "kept": writer.devices(options.dir)}
    if options.output == "json":
        print_json(data)
    else:
        for what, names in data.items():
            print("%s: %s" % (what, " ".join(names) or "nothing"))
    return 0
