"""A device that goes between the list and the container."""

import os
from pathlib import Path

import pytest

from kubelet_stand_in import PodRejected, StandInKubelet
from node_device_plugin.support.channels import grpc, unix_channel
from node_device_plugin.wire import device_plugin_v1beta1_pb2 as api
from node_device_plugin.wire import device_plugin_v1beta1_pb2_grpc as api_grpc

from .in_process import NAME, registration, resource


async def test_unplugged_between_list_and_allocate(short_path: Path) -> None:
    """Complaint 6: unplugging is not noticed, and unhealthy never recovers."""
    node = short_path / "device"
    served = resource(devices=[{"id": "d0", "nodes": [{"path": "/dev/d0", "host_path": str(node)}]}])
    directory = str(short_path / "dp")
    async with StandInKubelet(directory) as kubelet, registration(directory, served) as running:
        assert await kubelet.registered(NAME) == {"d0": "Healthy"}
        (name,) = (n for n in os.listdir(short_path / "dp" / "node-device-plugin") if n.startswith("dev-"))
        async with unix_channel(str(short_path / "dp" / "node-device-plugin" / name)) as channel:
            stub = api_grpc.DevicePluginStub(channel)
            request = api.AllocateRequest(container_requests=[api.ContainerAllocateRequest(devices_ids=["d0"])])
            await stub.Allocate(request)
            # As soon as it is noticed it is refused, whatever the kubelet still believes: no step in between.
            running.service.offered.table.update({"d0": "%s: No such file or directory" % node})
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await stub.Allocate(request)
            assert refused.value.code() == grpc.StatusCode.FAILED_PRECONDITION
            assert "No such file" in (refused.value.details() or "")
            await kubelet.until(lambda: kubelet.devices(NAME) == {"d0": "Unhealthy"})
            with pytest.raises(PodRejected):
                await kubelet.allocate_pod("pod", {"main": {NAME: 1}})
            running.service.offered.table.update({"d0": None})
            await kubelet.until(lambda: kubelet.devices(NAME) == {"d0": "Healthy"})
            await kubelet.allocate_pod("again", {"main": {NAME: 1}})
