"""The interface of a kubelet in scenarios (see in_process and on_node)."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Given(NamedTuple):
    """The parts of a container's CRI configuration that plugins can influence."""

    env: dict[str, str]
    devices: list[list[str]]
    mounts: list[list[str]]
    annotations: dict[str, str]
    cdi_devices: list[str]


class KubeletUnderTest(Protocol):
    """The kubelet interface of scenarios. quiet: if nothing changes for this many seconds, the kubelet is idle."""

    directory: str
    pod_resources_socket: str
    node_name: str
    quiet: float

    async def fresh(self) -> None:
        """Start as on a new node, without a checkpoint and without pods."""

    async def start(self) -> None:
        """Start, and wait until plugins can register."""

    async def stop(self) -> None:
        """Stop with SIGTERM, as systemd does."""

    async def place(self, manifest: dict[str, Any]) -> None:
        """Create a static pod."""

    async def take_away(self, name: str) -> None:
        """Remove a static pod's manifest."""

    async def pods(self) -> list[dict[str, Any]]:
        """The items of the kubelet's /pods."""

    async def given(self, container_id: str) -> Given:
        """The configuration with which a container was created."""

    async def end_container(self, container_id: str) -> None:
        """End a container, so that the kubelet must restart it."""
