"""Serves the kubelet's ``/pods`` on the read-only port, with each pod's phase and the reason of a rejection."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from .pod_worker import PodStatus
from .pods import Pod
from .stand_in import StandInKubelet

#: Timeout in seconds for a client's request.
_TIMEOUT = 5.0


class PodsHttpServer:
    """Answers ``GET /pods`` on 127.0.0.1 and nothing else."""

    def __init__(self, kubelet: StandInKubelet, port: int) -> None:
        self._kubelet = kubelet
        self._port = port
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", self._port)

    async def stop(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _TIMEOUT)
            found = request.startswith((b"GET /pods ", b"GET /pods/ "))
            body = json.dumps(self.pod_list() if found else {}).encode()
            writer.write(
                b"HTTP/1.0 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                % (b"200 OK" if found else b"404 Not Found", len(body), body)
            )
            await writer.drain()
        except (asyncio.TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()

    def pod_list(self) -> dict[str, Any]:
        """A PodList with the fields that the stand-in knows."""
        return {
            "kind": "PodList",
            "apiVersion": "v1",
            "items": [self._pod(pod, status) for pod, status in self._kubelet.pods.pods()],
        }

    def _pod(self, pod: Pod, status: PodStatus) -> dict[str, Any]:
        return {
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "spec": {"containers": [{"name": c.name, "image": c.image} for c in pod.containers]},
            "status": {
                "phase": status.phase,
                **({"reason": status.reason} if status.reason else {}),
                **({"message": status.message} if status.message else {}),
                "containerStatuses": [self._container(pod, name, status) for name in sorted(status.containers)],
            },
        }

    def _container(self, pod: Pod, name: str, status: PodStatus) -> dict[str, Any]:
        container = status.containers[name]
        code = container.exit_code
        return {
            "name": name,
            "containerID": "containerd://" + container.id,
            "restartCount": container.restart_count,
            "state": {"running": {}} if code is None else {"terminated": {"exitCode": code}},
            "allocatedResourcesStatus": self._kubelet.manager.health.of(pod.uid, name),
        }
