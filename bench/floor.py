"""The floor: a bare grpc.aio server that registers and gives prepared answers.

Usage: ``python -m bench.floor DIRECTORY ANSWERS``. Each resource in the file ANSWERS has its own server.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

from node_device_plugin.support.channels import grpc, unix_channel
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api
from node_device_plugin.wire import device_plugin_v1beta1_pb2_grpc as api_grpc


class _Bare(api_grpc.DevicePluginServicer):
    def __init__(self, allocate: bytes, devices: bytes) -> None:
        self._allocate = api.AllocateResponse.FromString(allocate)
        self._devices = api.ListAndWatchResponse.FromString(devices)

    async def GetDevicePluginOptions(self, request: api.Empty, context: Any) -> api.DevicePluginOptions:
        return api.DevicePluginOptions()

    async def ListAndWatch(self, request: api.Empty, context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        yield self._devices
        await asyncio.Event().wait()

    async def Allocate(self, request: api.AllocateRequest, context: Any) -> api.AllocateResponse:
        return self._allocate


async def _run(directory: str, prepared: dict[str, Any]) -> None:
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    os.makedirs(os.path.join(directory, "floor"), exist_ok=True)
    servers = []
    for number, devices in enumerate(prepared["lists"]):
        server = grpc.aio.server()
        bare = _Bare(bytes.fromhex(prepared["allocate"]), bytes.fromhex(devices))  # type: ignore[abstract]
        api_grpc.add_DevicePluginServicer_to_server(bare, server)
        endpoint = "floor/%d.sock" % number
        server.add_insecure_port("unix:" + os.path.join(directory, endpoint))
        await server.start()
        servers.append(server)
        if os.path.exists(os.path.join(directory, "kubelet.sock")):
            async with unix_channel(os.path.join(directory, "kubelet.sock")) as channel:
                request = api.RegisterRequest(
                    version="v1beta1", endpoint=endpoint, resource_name="example.com/dev-%d" % number
                )
                await api_grpc.RegistrationStub(channel).Register(request)
    await stopped.wait()
    for server in servers:
        await server.stop(None)


if __name__ == "__main__":
    with open(sys.argv[2]) as answers:
        loaded = json.load(answers)
    asyncio.run(_run(sys.argv[1], loaded))
