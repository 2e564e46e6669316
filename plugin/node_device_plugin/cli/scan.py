"""``scan``: lists the devices of this machine, and suggests declarations for them."""

from __future__ import annotations

import argparse
import asyncio

from .shared import Failure, command, option, print_data


@command(
    "scan",
    option(
        "-o",
        "--output",
        choices=("text", "yaml", "json"),
        default="text",
        help="output format; yaml is a declaration for the inventory (default: %(default)s)",
    ),
    option("--domain", default="devices.example.com", help="domain of the suggested resources (default: %(default)s)"),
    examples=("scan", "scan -o yaml --domain devices.example.org"),
)
def run(options: argparse.Namespace) -> int:
    """List the devices of this machine, and suggest declarations for them; nothing is opened or changed."""
    from ..diagnostics import scan

    problem = scan.domain_problem(options.domain)
    if problem:
        raise Failure(f"--domain: {problem}")
    # Do not call ask, because it imports grpc. A node without the plugin's environment has no grpc (module node_scan).
    data = asyncio.run(scan.scan(options.domain))
    if options.output == "json":
        print_data(options, data)
    else:
        print(scan.to_yaml(data) if options.output == "yaml" else scan.to_text(data))
    return 1 if data["problems"] else 0
