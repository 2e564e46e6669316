"""Tests channels to unix sockets, and the settings that must exist when grpc is loaded."""

import subprocess
import sys

import pytest

from kubelet_stand_in.recorder import register
from node_device_plugin.support.channels import grpc, unix_channel
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api
from node_device_plugin.wire import device_plugin_v1beta1_pb2_grpc as api_grpc

RESOURCE = "example.com/serial"

#: Prints the settings when grpc is loaded.
PROGRAM = """
import importlib, os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print(*map(os.environ.get, ("GRPC_VERBOSITY", "GRPC_ENABLE_FORK_SUPPORT", "GRPC_EXPERIMENTS")))
sys.meta_path.insert(0, Watch())
importlib.import_module(sys.argv[1])
"""


@pytest.mark.parametrize(
    "module",
    [
        "node_device_plugin.runtime.client",
        "node_device_plugin.kubelet.pod_resources",
        "kubelet_stand_in.stand_in",
        "kubelet_stand_in.kubelet_process",
        "kubelet_stand_in.transcripts",
    ],
)
def test_grpc_finds_its_settings(module):
    environment = {"PYTHONPATH": ":".join(sys.path)}
    output = subprocess.run(
        [sys.executable, "-c", PROGRAM, module],
        check=True,
        stdout=subprocess.PIPE,
        env=environment,
    ).stdout
    assert output.decode().split() == ["ERROR", "0", "-event_engine_listener"]


def test_grpc_knows_its_settings():
    program = "from node_device_plugin.support.channels import grpc; grpc.insecure_channel('unix:/nowhere')"
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], check=True, stderr=subprocess.PIPE, env=environment)
    assert done.stderr == b""


async def test_a_fresh_channel_does_not_wait_for_earlier_failures(kubelet, folder):
    socket = kubelet.socket
    await kubelet.stop()
    for _ in range(3):
        assert (await register(folder, RESOURCE, "x.sock", timeout=1)).startswith("UNAVAILABLE")
    await kubelet.start()
    # The error comes from the kubelet, so the kubelet itself was reached.
    kubelet.manager.clients._dial_timeout = 0.01
    assert (await register(folder, RESOURCE, "x.sock", timeout=1)).startswith("UNKNOWN: failed to dial")
    assert kubelet.socket == socket


async def test_an_answer_may_have_16_mib_and_less_where_it_is_said(kubelet, plugins):
    plugin = await plugins(["%063d" % number for number in range(100_000)])
    assert sum(len(device) for device in plugin.devices) > 6 << 20
    path = "%s/%s" % (plugin.directory, plugin.endpoint)
    async with unix_channel(path) as channel:
        async for response in api_grpc.DevicePluginStub(channel).ListAndWatch(api.Empty()):
            assert len(response.devices) == 100_000
            break
    async with unix_channel(path, receive_limit=4 << 20) as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="RESOURCE_EXHAUSTED"):
            async for _ in api_grpc.DevicePluginStub(channel).ListAndWatch(api.Empty()):
                pass
