"""The stand-in's PodResources v1 server, on ``<root>/pod-resources/kubelet.sock``."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Callable

from node_device_plugin.support.channels import grpc
from node_device_plugin.wire import pod_resources_v1_pb2 as api
from node_device_plugin.wire import pod_resources_v1_pb2_grpc as api_grpc

from .checkpoint import NO_NUMA_NODE
from .device_manager import DeviceManager
from .device_state import Held
from .pods import Pod


class PodResourcesServer(api_grpc.PodResourcesListerServicer):
    """Answers from the device manager's state. active_pods: returns the pods that may hold devices."""

    def __init__(self, socket: str, devices: DeviceManager, active_pods: Callable[[], Iterable[Pod]]) -> None:
        self.socket = socket
        self._devices = devices
        self._active_pods = active_pods
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen."""
        os.makedirs(os.path.dirname(self.socket), mode=0o750, exist_ok=True)
        self._server = grpc.aio.server()
        api_grpc.add_PodResourcesListerServicer_to_server(self, self._server)
        self._server.add_insecure_port("unix:" + self.socket)
        await self._server.start()

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def List(self, request: api.ListPodResourcesRequest, context: Any) -> api.ListPodResourcesResponse:
        self._devices.free_inactive()
        return api.ListPodResourcesResponse(pod_resources=[self._of_pod(pod) for pod in self._active_pods()])

    async def GetAllocatableResources(
        self, request: api.AllocatableResourcesRequest, context: Any
    ) -> api.AllocatableResourcesResponse:
        response = api.AllocatableResourcesResponse()
        # As in the kubelet, each device has an entry, and a resource without healthy devices has no entry.
        for resource, device in self._devices.state.allocatable():
            if not device.HasField("topology"):
                response.devices.add(resource_name=resource, device_ids=[device.ID])
            for node in device.topology.nodes:
                response.devices.append(_of_device(resource, device.ID, node.ID))
        return response

    async def Get(self, request: api.GetPodResourcesRequest, context: Any) -> api.GetPodResourcesResponse:
        for pod in self._active_pods():
            if (pod.name, pod.namespace) == (request.pod_name, request.pod_namespace):
                return api.GetPodResourcesResponse(pod_resources=self._of_pod(pod))
        await context.abort(
            grpc.StatusCode.UNKNOWN, "pod %s in namespace %s not found" % (request.pod_name, request.pod_namespace)
        )
        raise AssertionError("abort raises")

    def _of_pod(self, pod: Pod) -> api.PodResources:
        answer = api.PodResources(name=pod.name, namespace=pod.namespace)
        for container in pod.containers:
            held = self._devices.state.held_by(pod.uid, container.name)
            devices = [entry for resource, held_here in held.items() for entry in _of_held(resource, held_here)]
            answer.containers.add(name=container.name, devices=devices)
        return answer


def _of_held(resource: str, held: Held) -> list[api.ContainerDevices]:
    return [
        _of_device(resource, device, node) for node, devices in held.device_ids.items() for device in sorted(devices)
    ]


def _of_device(resource: str, device: str, node: int) -> api.ContainerDevices:
    answer = api.ContainerDevices(resource_name=resource, device_ids=[device])
    if node != NO_NUMA_NODE:
        answer.topology.nodes.add(ID=node)
    return answer
