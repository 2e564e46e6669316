"""``manifests``: the plugin as a DaemonSet, for GitOps."""

from __future__ import annotations

import argparse

from .shared import Commands, add_command, print_json


def add(commands: Commands) -> None:
    """Add the command."""
    command = add_command(
        commands,
        "manifests",
        run,
        "Print what a cluster needs to run the plugin as a DaemonSet: for GitOps, or kubectl apply --server-side.",
    )
    command.add_argument(
        "-o", "--output", choices=("yaml", "json"), default="yaml", help="form of the output (default: %(default)s)"
    )
    command.add_argument(
        "--deployment", metavar="FILE", required=True, help="image, namespace and so on: docs/daemonset.md"
    )
    command.add_argument(
        "directory", metavar="DIRECTORY", help="a configuration for each node, in a file of the node's name and .yaml"
    )


def run(options: argparse.Namespace) -> int:
    """Render the manifests."""
    from ..cluster.manifests import files

    rendered = files.render(options.directory, options.deployment)
    if options.output == "json":
        contents = [manifest.content for manifest in rendered]
        print_json({"apiVersion": "v1", "kind": "List", "items": contents})
    else:
        print(files.to_yaml(rendered), end="")
    return 0
