"""``discover``: lists the devices that a configuration would find on this node."""

from __future__ import annotations

import argparse
import functools

from . import declared
from .shared import CONFIG_OR_STDIN, OUTPUT, Failure, ask, command, print_data

#: Maximum seconds for the search while it uses the CPU.
_BUSY = 60.0


@command(
    "discover",
    CONFIG_OR_STDIN,
    OUTPUT,
    examples=("discover", "discover group_vars/all/zigbee.yml", "discover trial.yaml -o yaml"),
)
def run(options: argparse.Namespace) -> int:
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
    if options.output != "text":
        print_data(options, data)
    else:
        print(discovered.to_text(data))
    if discoverer.late:
        raise Failure("; ".join("{}: {}".format(*late) for late in discoverer.late.items()))
    return 0
