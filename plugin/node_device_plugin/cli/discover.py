"""``discover`` and ``scan``: list the devices that a configuration finds on this node, or all devices to declare."""

from __future__ import annotations

import argparse
import asyncio
import functools

from . import declared
from .shared import CONFIG_OR_STDIN, OUTPUT, Failure, ask, command, option, print_data, show

#: Maximum seconds for the search while it uses the CPU.
_BUSY = 60.0


@command(
    "discover",
    CONFIG_OR_STDIN,
    OUTPUT,
    examples=("discover", "discover group_vars/all/zigbee.yml", "discover trial.yaml -o yaml"),
)
def discover(options: argparse.Namespace) -> int:
    """List the devices that a configuration finds on this node; nothing is changed."""
    from ..cdi import writer
    from ..cdi.links import Links
    from ..devices.discovery import Discoverer
    from ..devices.health import CdiNames
    from ..diagnostics import discovered
    from ..support.bounded_calls import BoundedCalls

    configuration = declared.read(options.config).configuration
    resources = configuration.resources
    discoverer = Discoverer(Links(BoundedCalls(busy=_BUSY)))
    offered = functools.partial(writer.offered, configuration.dynamic_cdi_dir)
    found = ask(discoverer.discover(resources, offered, spec_dirs=configuration.cdi_spec_dirs))
    names = CdiNames(configuration.cdi_spec_dirs)
    devices = [*(each.devices for each in resources), *(each.devices for each in found.values())]
    names.read(name for those in devices for device in those for name in device.cdi_devices)
    data = discovered.to_data(resources, found, names)
    show(options, data, discovered.to_text(data))
    if discoverer.late:
        raise Failure("; ".join("{}: {}".format(*late) for late in discoverer.late.items()))
    return 0


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
def scan(options: argparse.Namespace) -> int:
    """List the devices of this machine, and suggest declarations for them; nothing is opened or changed."""
    from ..diagnostics import scan as devices

    problem = devices.domain_problem(options.domain)
    if problem:
        raise Failure(f"--domain: {problem}")
    # Do not call ask, because it imports grpc. A node without the plugin's environment has no grpc (module node_scan).
    data = asyncio.run(devices.scan(options.domain))
    if options.output == "json":
        print_data(options, data)
    else:
        print(devices.to_yaml(data) if options.output == "yaml" else devices.to_text(data))
    return 1 if data["problems"] else 0
