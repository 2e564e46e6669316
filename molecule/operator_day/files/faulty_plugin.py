"""Runs a device plugin that fails, and prints the kubelet's calls as JSON.

faulty_plugin.py options RESOURCE: GetDevicePluginOptions fails. Prints the result of Register, and the calls.
faulty_plugin.py streams AT_ONCE LATER: two resources with two devices each. ListAndWatch of AT_ONCE fails before its
first list. ListAndWatch of LATER fails when the file /run/faulty_plugin.fail appears. Writes /run/faulty_plugin.begun
when both are registered. Prints the calls when /run/faulty_plugin.end appears.

Runs on a node with the environment of role node_tools.
"""

from __future__ import annotations

import asyncio
import json
import os
import pathlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from kubelet_stand_in.recorder import RecordingPlugin, healthy
from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api

_DIRECTORY = "/var/lib/kubelet/device-plugins"
_FILES = "/run/faulty_plugin."
_WORDS = "as it was told"


class FaultyPlugin(RecordingPlugin):
    """fails: the call that fails. later: whether the call fails only after the file exists."""

    def __init__(self, resource: str, fails: str, later: bool = False) -> None:
        endpoint = "faulty-%s.sock" % resource.replace("/", "-")
        super().__init__(_DIRECTORY, resource, endpoint, healthy(["0", "1"]))
        self._fails = fails
        self._later = later

    @property
    def names(self) -> list[str]:
        return [each["call"] for each in self.calls if "ended_by" not in each]

    async def GetDevicePluginOptions(self, request: api.Empty, context: Any) -> api.DevicePluginOptions:
        if self._fails == "GetDevicePluginOptions":
            self.calls.append({"call": "GetDevicePluginOptions"})
            await context.abort(grpc.StatusCode.INTERNAL, _WORDS)
        return await super().GetDevicePluginOptions(request, context)

    async def ListAndWatch(self, request: api.Empty, context: Any) -> AsyncIterator[api.ListAndWatchResponse]:
        self.calls.append({"call": "ListAndWatch"})
        if self._later:
            yield api.ListAndWatchResponse(devices=[api.Device(ID=i, health=h) for i, h in self.devices.items()])
            await _file("fail")
        await context.abort(grpc.StatusCode.INTERNAL, _WORDS)


async def _file(name: str) -> None:
    while not os.path.exists(_FILES + name):
        await asyncio.sleep(0.1)


async def options(resource: str) -> None:
    plugin = FaultyPlugin(resource, "GetDevicePluginOptions")
    await plugin.start()
    said = await plugin.register()
    await plugin.stop()
    print(json.dumps({"said": said, "calls": plugin.names}))


async def streams(at_once: str, later: str) -> None:
    plugins = [FaultyPlugin(at_once, "ListAndWatch"), FaultyPlugin(later, "ListAndWatch", later=True)]
    for plugin in plugins:
        await plugin.start()
        said = await plugin.register()
        assert said == "ok", said
    pathlib.Path(_FILES + "begun").touch()
    await _file("end")
    print(json.dumps({plugin.resource: plugin.names for plugin in plugins}))
    for plugin in plugins:
        await plugin.stop()


_RUNS: dict[str, Callable[..., Coroutine[Any, Any, None]]] = {"options": options, "streams": streams}
asyncio.run(_RUNS[sys.argv[1]](*sys.argv[2:]))
