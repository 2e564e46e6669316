"""What each way to the kubelet has: the v1beta1 device plugin API is one; DRA can stand beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ..declaration import Device, Resource
from ..devices.table import DeviceTable


class ResourceStatus(NamedTuple):
    """How one resource stands with the kubelet.

    is_registered: whether the kubelet gives its devices away. connected_seconds: since when, or None.
    """

    is_registered: bool
    connected_seconds: float | None


class Frontend(Protocol):
    """One API of the kubelet on this node, for all resources. Belongs to the running event loop."""

    async def run(self) -> None:
        """Serve what is offered until cancelled. Raises what makes serving impossible."""

    def without_room(self, resource: Resource, staying: Sequence[Device], found: Sequence[Device]) -> Mapping[str, str]:
        """Which of the devices found the API cannot carry beside those that stay: id to the reason."""

    async def offer(self, table: DeviceTable) -> bool:
        """Offer a resource with its devices, in the place of an offer under its name.

        True where the kubelet's connection for that earlier offer goes on with the new table.
        """

    async def withdraw(self, resource: str) -> None:
        """Offer a resource no longer, by its name."""

    async def all_served(self) -> None:
        """Return once the kubelet can reach every resource that is offered now."""

    def repeat(self) -> None:
        """Tell the kubelet of all devices again: another instance, which has ended, may have told it of others."""

    def status(self, resource: str) -> ResourceStatus:
        """How a resource stands, by its name; one that is not offered is not registered."""
