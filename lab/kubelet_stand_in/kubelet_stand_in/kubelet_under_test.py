"""A kubelet as scenarios see it (see in_process and on_node)."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol


class Given(NamedTuple):
    """What the runtime was asked for on behalf of a container, as far as plugins have a say in it."""

    env: dict[str, str]
    devices: list[list[str]]
    mounts: list[list[str]]
    annotations: dict[str, str]
    cdi_devices: list[str]


class KubeletUnderTest(Protocol):
    """What a scenario needs of a kubelet. quiet: seconds without any change after which nothing more will come."""

    directory: str
    pod_resources_socket: str
    node_name: str
    quiet: float

    async def fresh(self) -> None:
        """Start as on a new node: no checkpoint, no pods."""

    async def start(self) -> None:
        """Start, and wait until plugins can register."""

    async def stop(self) -> None:
        """Stop as systemd does."""

    async def place(self, manifest: dict[str, Any]) -> None:
        """Make a static pod."""

    async def take_away(self, name: str) -> None:
        """Remove a static pod's manifest."""

    async def pods(self) -> list[dict[str, Any]]:
        """The items of the kubelet's /pods."""

    async def given(self, container_id: str) -> Given:
        """What a container was created with."""

    async def end_container(self, container_id: str) -> None:
        """Let a container end, so that the kubelet has to start it anew."""
