"""An in-memory container runtime with KubeletCriClient's methods, for tests without a node. It starts no processes."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Protocol

from node_device_plugin.wire import cri_v1_pb2 as cri


class Runtime(Protocol):
    """The methods of a container runtime that the stand-in needs. KubeletCriClient implements and documents them."""

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig) -> str: ...

    async def stop_pod_sandbox(self, sandbox: str) -> None: ...

    async def remove_pod_sandbox(self, sandbox: str) -> None: ...

    async def pod_sandboxes(self, labels: Mapping[str, str] | None = None) -> list[cri.PodSandbox]: ...

    async def create_container(
        self, sandbox: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str: ...

    async def start_container(self, container: str) -> None: ...

    async def stop_container(self, container: str, grace: int = 0) -> None: ...

    async def remove_container(self, container: str) -> None: ...

    async def containers(self, labels: Mapping[str, str] | None = None) -> list[cri.Container]: ...

    async def container_status(self, container: str) -> cri.ContainerStatus: ...

    async def image(self, name: str) -> cri.Image | None: ...


class MemoryRuntime:
    """A Runtime whose containers run until `exit`. configs: the configuration of each container."""

    def __init__(self) -> None:
        self.configs: dict[str, cri.ContainerConfig] = {}
        self._sandboxes: dict[str, cri.PodSandbox] = {}
        self._containers: dict[str, cri.Container] = {}
        self._exit_codes: dict[str, int] = {}
        self._numbers = itertools.count(1)

    def exit(self, container: str, code: int = 0) -> None:
        """Mark a container as exited."""
        self._containers[container].state = cri.CONTAINER_EXITED
        self._exit_codes[container] = code

    async def run_pod_sandbox(self, config: cri.PodSandboxConfig) -> str:
        identity = "sandbox-%d" % next(self._numbers)
        self._sandboxes[identity] = cri.PodSandbox(
            id=identity,
            metadata=config.metadata,
            state=cri.SANDBOX_READY,
            created_at=next(self._numbers),
            labels=config.labels,
            annotations=config.annotations,
        )
        return identity

    async def stop_pod_sandbox(self, sandbox: str) -> None:
        if sandbox in self._sandboxes:
            self._sandboxes[sandbox].state = cri.SANDBOX_NOTREADY
        for container in await self.containers(sandbox=sandbox):
            await self.stop_container(container.id)

    async def remove_pod_sandbox(self, sandbox: str) -> None:
        for container in await self.containers(sandbox=sandbox):
            await self.remove_container(container.id)
        self._sandboxes.pop(sandbox, None)

    async def pod_sandboxes(self, labels: Mapping[str, str] | None = None) -> list[cri.PodSandbox]:
        return [sandbox for sandbox in self._sandboxes.values() if _carries(sandbox.labels, labels)]

    async def create_container(
        self, sandbox: str, config: cri.ContainerConfig, sandbox_config: cri.PodSandboxConfig
    ) -> str:
        identity = "container-%d" % next(self._numbers)
        self.configs[identity] = config
        self._containers[identity] = cri.Container(
            id=identity,
            pod_sandbox_id=sandbox,
            metadata=config.metadata,
            state=cri.CONTAINER_CREATED,
            created_at=next(self._numbers),
            labels=config.labels,
            annotations=config.annotations,
        )
        return identity

    async def start_container(self, container: str) -> None:
        self._containers[container].state = cri.CONTAINER_RUNNING

    async def stop_container(self, container: str, grace: int = 0) -> None:
        if container in self._containers and self._containers[container].state != cri.CONTAINER_EXITED:
            self.exit(container, 137)

    async def remove_container(self, container: str) -> None:
        self._containers.pop(container, None)
        self.configs.pop(container, None)

    async def containers(self, labels: Mapping[str, str] | None = None, sandbox: str = "") -> list[cri.Container]:
        return [
            container
            for container in self._containers.values()
            if _carries(container.labels, labels) and sandbox in ("", container.pod_sandbox_id)
        ]

    async def container_status(self, container: str) -> cri.ContainerStatus:
        known = self._containers[container]
        return cri.ContainerStatus(
            id=container, metadata=known.metadata, state=known.state, exit_code=self._exit_codes.get(container, 0)
        )

    async def image(self, name: str) -> cri.Image | None:
        return cri.Image(id=name, repo_tags=[name])


def _carries(labels: Mapping[str, str], wanted: Mapping[str, str] | None) -> bool:
    return all(labels.get(key) == value for key, value in (wanted or {}).items())
