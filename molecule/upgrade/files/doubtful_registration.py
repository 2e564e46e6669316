"""Registers with this node's kubelet several times, each time with a doubtful result, and checks the devices.

Runs with the plugin's Python. The resource belongs to no other plugin, so the node's plugin may run at the same time.
"""

import asyncio
import sys

from node_device_plugin.declaration import parse_resources
from node_device_plugin.devices.table import DeviceTable
from node_device_plugin.kubelet.device_plugin import registration
from node_device_plugin.kubelet.device_plugin.kubelet_socket import KubeletSocket
from node_device_plugin.kubelet.device_plugin.server import DevicePluginServer
from node_device_plugin.kubelet.pod_resources import PodResourcesClient

NAME = "doubt.example.com/device"
DIRECTORY, POD_RESOURCES = "/var/lib/kubelet/device-plugins", "/var/lib/kubelet/pod-resources/kubelet.sock"
#: Number of doubtful registrations of each kind.
TIMES = 5


async def count(wanted):
    """Wait until the kubelet offers so many devices."""
    seen = None
    for _ in range(200):
        async with PodResourcesClient(POD_RESOURCES) as client:
            seen = len((await client.allocatable()).get(NAME, ()))
        if seen == wanted:
            return
        await asyncio.sleep(0.1)
    sys.exit("the kubelet offers %s devices, not %d" % (seen, wanted))


async def main():
    devices = [{"id": "d0"}, {"id": "d1"}]
    (resource,) = parse_resources([{"name": NAME, "devices": devices, "env": {"DEV_{index}": "{id}"}}])
    table = DeviceTable(resource)
    table.update({"d0": None, "d1": None})
    service = DevicePluginServer(table)
    names = []

    class Doubtful(registration.Registration):
        """Treats the kubelet's stream as missing, TIMES times."""

        def _socket_path(self):
            names.append(super()._socket_path())
            return names[-1]

        async def _stream_opened(self, *arguments):
            is_open = await super()._stream_opened(*arguments)
            asked.append(is_open)
            return is_open and len(asked) > TIMES

    asked: list[bool] = []
    running = asyncio.create_task(Doubtful(service, KubeletSocket(DIRECTORY)).run())
    await count(2)
    while len(asked) <= TIMES:
        await asyncio.sleep(0.1)
    for _ in range(TIMES):
        await service.stream.wait_until(True)
        service.stream.end()
        await service.stream.wait_until(False)
    await service.stream.wait_until(True)
    await count(2)
    running.cancel()
    await asyncio.wait([running])
    await count(0)
    print("registered %d times on %d sockets, all of them gone" % (len(asked), len(names)))


asyncio.run(main())
