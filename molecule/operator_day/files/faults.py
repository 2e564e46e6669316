"""Runs our plugin with faults in the kubelet's calls: faults.py ARGUMENT...

ARGUMENT...: arguments of node-device-plugin. For each resource, the first two calls of GetDevicePluginOptions fail, and
the first ListAndWatch ends after its first list. Each fault prints a line. Runs on a node with the environment of role
node_tools.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import device_plugin_v1beta1_pb2_grpc as api_grpc

_OPTIONS, _LISTS = 2, 1
_calls: dict[str, int] = {}
_add = api_grpc.add_DevicePluginServicer_to_server


def _count(servicer: Any, call: str) -> int:
    """Return how often the call has come for the resource, including this call."""
    key = "%s of %s" % (call, servicer.resource.name)
    _calls[key] = _calls.get(key, 0) + 1
    return _calls[key]


def _say(call: str) -> None:
    print("injected: %s" % call, flush=True)


def add(servicer: Any, server: Any) -> None:
    """Add the servicer as the generated function does, with the faults before the two calls."""
    get_options, list_and_watch = servicer.GetDevicePluginOptions, servicer.ListAndWatch

    async def faulty_options(request: Any, context: Any) -> Any:
        # Without a context, the plugin itself calls the function.
        if context is not None and _count(servicer, "GetDevicePluginOptions") <= _OPTIONS:
            _say("GetDevicePluginOptions")
            await context.abort(grpc.StatusCode.INTERNAL, "a fault that a test has injected")
        return await get_options(request, context)

    async def faulty_list(request: Any, context: Any) -> AsyncIterator[Any]:
        is_faulty = _count(servicer, "ListAndWatch") <= _LISTS
        async for answer in list_and_watch(request, context):
            yield answer
            if is_faulty:
                _say("ListAndWatch")
                return

    servicer.GetDevicePluginOptions, servicer.ListAndWatch = faulty_options, faulty_list
    _add(servicer, server)


api_grpc.add_DevicePluginServicer_to_server = add

from node_device_plugin.cli.main import main  # noqa: E402

sys.exit(main())
