"""A CRI server with an in-memory runtime, which answers as containerd does."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from node_device_plugin.wire import cri_v1_pb2 as cri
from node_device_plugin.wire import cri_v1_pb2_grpc as cri_grpc

from .memory_runtime import MemoryRuntime


class CriServer(cri_grpc.RuntimeServiceServicer, cri_grpc.ImageServiceServicer):
    """The server. version, name: for Version. config: for a verbose Status. images: for the image list."""

    def __init__(
        self,
        socket: str,
        version: str = "2.1.9",
        config: Any = None,
        images: Sequence[cri.Image] = (),
        name: str = "containerd",
    ) -> None:
        self.runtime = MemoryRuntime()
        self.version = version
        self.name = name
        self.config = config
        self.images = list(images)
        self._socket = socket

    async def __aenter__(self) -> CriServer:
        self._server = grpc.aio.server()
        cri_grpc.add_RuntimeServiceServicer_to_server(self, self._server)
        cri_grpc.add_ImageServiceServicer_to_server(self, self._server)
        self._server.add_insecure_port("unix:" + self._socket)
        await self._server.start()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._server.stop(None)

    async def Version(self, request: Any, context: Any) -> Any:
        return cri.VersionResponse(
            version="0.1.0", runtime_name=self.name, runtime_version=self.version, runtime_api_version="v1"
        )

    async def Status(self, request: Any, context: Any) -> Any:
        conditions = [
            cri.RuntimeCondition(type="RuntimeReady", status=True),
            cri.RuntimeCondition(type="NetworkReady", status=False, reason="NoNetwork", message="no CNI"),
        ]
        info = {"golang": "go"}
        if request.verbose and self.config is not None:
            info["config"] = self.config if isinstance(self.config, str) else json.dumps(self.config)
        return cri.StatusResponse(status=cri.RuntimeStatus(conditions=conditions), info=info)

    async def RunPodSandbox(self, request: Any, context: Any) -> Any:
        return cri.RunPodSandboxResponse(pod_sandbox_id=await self.runtime.run_pod_sandbox(request.config))

    async def StopPodSandbox(self, request: Any, context: Any) -> Any:
        await self.runtime.stop_pod_sandbox(request.pod_sandbox_id)
        return cri.StopPodSandboxResponse()

    async def RemovePodSandbox(self, request: Any, context: Any) -> Any:
        await self.runtime.remove_pod_sandbox(request.pod_sandbox_id)
        return cri.RemovePodSandboxResponse()

    async def ListPodSandbox(self, request: Any, context: Any) -> Any:
        items = await self.runtime.pod_sandboxes(request.filter.label_selector)
        return cri.ListPodSandboxResponse(items=items)

    async def CreateContainer(self, request: Any, context: Any) -> Any:
        if request.pod_sandbox_id not in {sandbox.id for sandbox in await self.runtime.pod_sandboxes()}:
            await context.abort(grpc.StatusCode.NOT_FOUND, "failed to find sandbox id %r" % request.pod_sandbox_id)
        identity = await self.runtime.create_container(request.pod_sandbox_id, request.config, request.sandbox_config)
        return cri.CreateContainerResponse(container_id=identity)

    async def StartContainer(self, request: Any, context: Any) -> Any:
        await self.runtime.start_container(request.container_id)
        return cri.StartContainerResponse()

    async def StopContainer(self, request: Any, context: Any) -> Any:
        await self.runtime.stop_container(request.container_id, request.timeout)
        return cri.StopContainerResponse()

    async def RemoveContainer(self, request: Any, context: Any) -> Any:
        await self.runtime.remove_container(request.container_id)
        return cri.RemoveContainerResponse()

    async def ListContainers(self, request: Any, context: Any) -> Any:
        wanted = request.filter
        return cri.ListContainersResponse(
            containers=await self.runtime.containers(wanted.label_selector, wanted.pod_sandbox_id)
        )

    async def ContainerStatus(self, request: Any, context: Any) -> Any:
        if request.container_id not in {container.id for container in await self.runtime.containers()}:
            await context.abort(grpc.StatusCode.NOT_FOUND, "an error occurred when try to find container")
        status = await self.runtime.container_status(request.container_id)
        pid = 4711 if status.state == cri.CONTAINER_RUNNING else 0
        told: dict[str, Any] = {"pid": pid}
        if self.name == "containerd":
            config = self.runtime.configs[request.container_id]
            told["config"] = {
                "annotations": dict(config.annotations),
                "CDI_devices": [{"name": device.name} for device in config.CDI_devices],
            }
        info = {"info": json.dumps(told)} if request.verbose else {}
        return cri.ContainerStatusResponse(status=status, info=info)

    async def ListImages(self, request: Any, context: Any) -> Any:
        return cri.ListImagesResponse(images=self.images)

    async def ImageStatus(self, request: Any, context: Any) -> Any:
        for image in self.images or filter(None, [await self.runtime.image(request.image.image)]):
            if request.image.image in image.repo_tags:
                return cri.ImageStatusResponse(image=image)
        return cri.ImageStatusResponse()
