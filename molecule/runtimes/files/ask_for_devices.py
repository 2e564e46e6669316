"""Ask the runtime for a container with CDI devices, whatever it says of CDI, and say as JSON what the proof found.

Run by the plugin's Python on a node without a kubelet, with the runtime's CRI socket; standard input has the
declaration's configuration.
"""

import asyncio
import json
import sys

from node_device_plugin.declaration import parse_configuration
from node_device_plugin.devices.health import CdiNames
from node_device_plugin.runtime.client import CriClient
from node_device_plugin.verification import proof_by_runtime


async def main():
    resource = next(r for r in parse_configuration(json.load(sys.stdin)).resources if r.uses_cdi)
    async with CriClient(sys.argv[1]) as cri:
        image = await cri.sandbox_image()
        assert image, "the runtime names no sandbox image"
        outcome = await proof_by_runtime.prove(resource, cri, image, CdiNames(()))
    print(json.dumps(outcome._asdict()))


asyncio.run(main())
