"""The client of a container runtime, with the calls that only a kubelet makes."""

from __future__ import annotations

from node_device_plugin.runtime.client import CriClient
from node_device_plugin.wire import cri_v1_pb2 as cri

#: Maximum seconds for a call, beside a container's grace period.
_LIMIT = 120.0


class KubeletCriClient(CriClient):
    """A kubelet's connection to a container runtime."""

    async def stop_container(self, container: str, grace: int = 0) -> None:
        """Stop a container: SIGTERM, then SIGKILL after ``grace`` seconds. A missing container is no error."""
        request = cri.StopContainerRequest(container_id=container, timeout=grace)
        await self._call(f"stop container {container}", self._runtime.StopContainer, request, _LIMIT + grace)

    async def remove_container(self, container: str) -> None:
        """Remove a container; a missing container is no error."""
        request = cri.RemoveContainerRequest(container_id=container)
        await self._call(f"remove container {container}", self._runtime.RemoveContainer, request, _LIMIT)
