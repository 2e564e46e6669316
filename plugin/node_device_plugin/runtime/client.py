"""The project's only client of the container runtime. It covers the part of CRI v1 that the project uses.

Methods for pods and containers take and return CRI's own messages. Methods about the runtime return plain data.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ..support.channels import UnixClient, grpc
from ..support.kubelet_process import socket_path
from ..wire import cri_v1_pb2 as cri
from ..wire import cri_v1_pb2_grpc as cri_grpc
from .errors import CriError

if TYPE_CHECKING:
    from ..wire.cri_v1_pb2_grpc import ImageServiceAsyncStub, RuntimeServiceAsyncStub

#: Maximum seconds for a call that only reads data.
_ASK = 15.0
#: Maximum seconds for a call that changes something, as in the kubelet (runtimeRequestTimeout).
_ACT = 120.0

_Request = TypeVar("_Request")
_Response = TypeVar("_Response")


class CriClient(UnixClient):
    """One connection to a container runtime: ``async with CriClient("/run/containerd/containerd.sock") as runtime``.

    socket: a path, or a path in one of the kubelet's forms, such as ``unix:///run/containerd/containerd.sock``.
    Every method raises CriError.
    """

    def __init__(self, socket: str) -> None:
        super().__init__(socket_path(socket))

    @property
    def _runtime(self) -> RuntimeServiceAsyncStub:
        return cri_grpc.RuntimeServiceStub(self._channel)

    @property
    def _images(self) -> ImageServiceAsyncStub:
        return cri_grpc.ImageServiceStub(self._channel)

    async def version(self) -> tuple[str, str]:
        """The name and version that the runtime reports, e.g. ``containerd``, ``1.7.24~ds1``."""
        answer = await self._call("report its version", self._runtime.Version, cri.VersionRequest(), _ASK)
        return answer.runtime_name, answer.runtime_version

    async def status(self) -> tuple[dict[str, bool], dict[str, Any]]:
        """The values of the conditions, such as RuntimeReady and NetworkReady, and the running daemon's settings.

        The settings are in ``info["config"]`` of a verbose Status, and may differ from the configuration file.
        """
        request = cri.StatusRequest(verbose=True)
        answer = await self._call("report its status", self._runtime.Status, request, _ASK)
        conditions = {condition.type: condition.status for condition in answer.status.conditions}
        return conditions, _json_object(answer.info.get("config"))

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig) -> str:
        """Create and start a sandbox; returns its id."""
        request = cri.RunPodSandboxRequest(config=config)
        what = f"start a sandbox for pod {config.metadata.namespace}/{config.metadata.name}"
        return (await self._call(what, self._runtime.RunPodSandbox, request, _ACT)).pod_sandbox_id

    async def stop_pod_sandbox(self, sandbox: str) -> None:
        """Stop a sandbox and kill every container in it; a stopped or missing sandbox is no error."""
        request = cri.StopPodSandboxRequest(pod_sandbox_id=sandbox)
        await self._call(f"stop sandbox {sandbox}", self._runtime.StopPodSandbox, request, _ACT)

    async def remove_pod_sandbox(self, sandbox: str) -> None:
        """Remove a sandbox and every container in it; a missing sandbox is no error."""
        request = cri.RemovePodSandboxRequest(pod_sandbox_id=sandbox)
        await self._call(f"remove sandbox {sandbox}", self._runtime.RemovePodSandbox, request, _ACT)

    async def pod_sandboxes(self, labels: Mapping[str, str] | None = None) -> list[cri.PodSandbox]:
        """The sandboxes, ready or not, that have all of ``labels``."""
        request = cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(label_selector=labels))
        return list((await self._call("list its sandboxes", self._runtime.ListPodSandbox, request, _ASK)).items)

    async def create_container(
        self, sandbox: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str:
        """Create a container in a sandbox; returns its id. sandbox_config: the configuration of the sandbox."""
        request = cri.CreateContainerRequest(pod_sandbox_id=sandbox, config=config, sandbox_config=sandbox_config)
        pod = sandbox_config.metadata
        what = f"create container {config.metadata.name} of pod {pod.namespace}/{pod.name}"
        return (await self._call(what, self._runtime.CreateContainer, request, _ACT)).container_id

    async def start_container(self, container: str) -> None:
        """Start a created container."""
        request = cri.StartContainerRequest(container_id=container)
        await self._call(f"start container {container}", self._runtime.StartContainer, request, _ACT)

    async def containers(self, labels: Mapping[str, str] | None = None) -> list[cri.Container]:
        """The containers, in any state, that have all of ``labels``."""
        request = cri.ListContainersRequest(filter=cri.ContainerFilter(label_selector=labels))
        return list((await self._call("list its containers", self._runtime.ListContainers, request, _ASK)).containers)

    async def container_status(self, container: str) -> cri.ContainerStatus:
        """A container's state, exit code and times (nanoseconds since the epoch)."""
        return (await self._container_status(container, verbose=False)).status

    async def container_info(self, container: str) -> dict[str, Any]:
        """The runtime's own data about a container, such as ``pid`` and ``config`` in containerd."""
        return _json_object((await self._container_status(container, verbose=True)).info.get("info"))

    async def container_pid(self, container: str) -> int | None:
        """The process id of a container's first process in the runtime's namespace; None while there is no process."""
        pid = (await self.container_info(container)).get("pid")
        return pid if isinstance(pid, int) and pid > 0 else None

    async def images(self) -> list[cri.Image]:
        """The images that the runtime has."""
        request = cri.ListImagesRequest()
        return list((await self._call("list its images", self._images.ListImages, request, _ASK)).images)

    async def image(self, name: str) -> cri.Image | None:
        """The image that a pod would get for ``name``; None if the runtime does not have the image."""
        request = cri.ImageStatusRequest(image=cri.ImageSpec(image=name))
        answer = await self._call(f"look for image {name}", self._images.ImageStatus, request, _ASK)
        return answer.image if answer.HasField("image") else None

    async def sandbox_image(self) -> str | None:
        """The image of sandboxes. It needs no registry, because every node that ran a pod has the image.

        The name comes from the effective configuration (containerd 1.x), or else from the images that the runtime pins
        (containerd from 2.0 on, CRI-O). None if the image is not on this node yet.
        """
        _conditions, settings = await self.status()
        configured = str(settings.get("sandboxImage") or "")
        if configured:
            return configured if await self.image(configured) else None
        pinned = sorted(tag for image in await self.images() if image.pinned for tag in image.repo_tags)
        # Other images may also be pinned. Every distribution's name for the sandbox image contains pause.
        return min(pinned, key=lambda tag: "pause" not in tag, default=None)

    async def _container_status(self, container: str, verbose: bool) -> cri.ContainerStatusResponse:
        request = cri.ContainerStatusRequest(container_id=container, verbose=verbose)
        what = f"report the status of container {container}"
        return await self._call(what, self._runtime.ContainerStatus, request, _ASK)

    async def _call(
        self,
        what: str,
        method: grpc.aio.UnaryUnaryMultiCallable[_Request, _Response],
        request: _Request,
        timeout: float,
    ) -> _Response:
        try:
            return await method(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise CriError(self.socket, what, error.code(), error.details() or "") from error


def _json_object(text: str | None) -> dict[str, Any]:
    """The JSON object in a verbose answer; empty for any other text, because runtimes may put any text there."""
    try:
        value = json.loads(text or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
