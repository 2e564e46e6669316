"""``manifests``: prints the objects of the plugin as a DaemonSet, for GitOps."""

from __future__ import annotations

import argparse

from .shared import command, option, print_data


@command(
    "manifests",
    option("-o", "--output", choices=("yaml", "json"), default="yaml", help="output format (default: %(default)s)"),
    option(
        "--deployment",
        metavar="FILE",
        required=True,
        help="settings of the DaemonSet, such as image and namespace (docs/daemonset.md), or - for stdin",
    ),
    option(
        "directory",
        metavar="DIRECTORY",
        help="directory with _default.yaml for all nodes, and NODE.yaml for each that differs",
    ),
    examples=("manifests --deployment packaging/kubectl/deployment.yaml packaging/kubectl/nodes",),
)
def run(options: argparse.Namespace) -> int:
    """Print the manifests of the plugin's DaemonSet, for GitOps or kubectl apply --server-side."""
    from ..cluster.manifests import files

    rendered = files.render(options.directory, options.deployment)
    if options.output == "json":
        contents = [manifest.content for manifest in rendered]
        print_data(options, {"apiVersion": "v1", "kind": "List", "items": contents})
    else:
        print(files.to_yaml(rendered), end="")
    return 0
