"""Requests a container with CDI devices from the runtime, even with CDI off, and prints the proof's result as JSON.

Runs with the plugin's Python on a node without a kubelet. Argument: the runtime's CRI socket. Standard input: the
declaration's configuration.
"""

import asyncio
import json
import sys

from node_device_plugin.declaration import parse_configuration
from node_device_plugin.devices.health import CdiNames
from node_device_plugin.runtime.client import CriClient
from node_device_plugin.verification import without_lists


async def main():
    resource = next(r for r in parse_configuration(json.load(sys.stdin)).resources if r.uses_cdi)
    async with CriClient(sys.argv[1]) as cri:
        image = await cri.sandbox_image()
        assert image, "the runtime names no sandbox image"
        outcome = await without_lists.prove_by_runtime(resource, cri, image, CdiNames(()))
    print(json.dumps(outcome._asdict()))


asyncio.run(main())
