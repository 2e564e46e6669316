"""Measures the duration of Allocate for a gRPC client."""

from __future__ import annotations

import glob
import os
import time

from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api
from node_device_plugin.wire import device_plugin_v1beta1_pb2_grpc as api_grpc

from . import processes
from .figures import Figure, median, percentile
from .settings import settings

ROUNDS, CALLS = 5, 500
#: Limits in milliseconds: of the median above the floor's median, and of p99.
MEDIAN_OVER_FLOOR, MOST_P99 = 0.3, 5.0


def measure() -> list[Figure]:
    ours: list[tuple[float, float]] = []
    floor: list[tuple[float, float]] = []
    with settings(resources=1, devices=100) as given:
        request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=[given.id(0, 0)])])
        with (
            processes.plugin(given.config, given.log),
            processes.floor(given.device_plugin_dir, given.answers, given.log),
        ):
            sockets = [_socket(os.path.join(given.device_plugin_dir, name)) for name in ("node-device-plugin", "floor")]
            with _channel(sockets[0]) as our_channel, _channel(sockets[1]) as floor_channel:
                first = [api_grpc.DevicePluginStub(c).Allocate(request) for c in (our_channel, floor_channel)]
                if first[0].ByteSize() != first[1].ByteSize():
                    raise RuntimeError("the floor's answer and the plugin's differ in size: %s" % first)
                for _ in range(ROUNDS):
                    floor.append(_calls(floor_channel, request))
                    ours.append(_calls(our_channel, request))
    p50, p99 = (median([values[part] for values in ours]) for part in (0, 1))
    floor_p50, floor_p99 = (median([values[part] for values in floor]) for part in (0, 1))
    return [
        Figure("Allocate, p50", "ms", p50, floor_p50, floor_p50 + MEDIAN_OVER_FLOOR),
        Figure("Allocate, p99", "ms", p99, floor_p99, MOST_P99),
    ]


def _channel(socket: str) -> grpc.Channel:
    return grpc.insecure_channel("unix:" + socket, options=[("grpc.default_authority", "localhost")])


def _calls(channel: grpc.Channel, request: api.AllocateRequest) -> tuple[float, float]:
    stub, taken = api_grpc.DevicePluginStub(channel), []
    for _ in range(CALLS):
        started = time.perf_counter()
        stub.Allocate(request)
        taken.append((time.perf_counter() - started) * 1e3)
    return median(taken), percentile(taken, 0.99)


def _socket(directory: str) -> str:
    for _ in range(1000):
        # Skip the plugin's status socket, which serves HTTP, in the same directory.
        found = set(glob.glob(os.path.join(directory, "*.sock"))) - {os.path.join(directory, "status.sock")}
        if found:
            return found.pop()
        time.sleep(0.01)
    raise RuntimeError("%s has no socket of a resource" % directory)
