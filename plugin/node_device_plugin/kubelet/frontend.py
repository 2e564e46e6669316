"""The interface of a kubelet device API: v1beta1 device plugins now, and possibly also DRA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from ..declaration import Device, Resource
from ..devices.table import DeviceTable


class ResourceStatus(NamedTuple):
    """The status of one resource with the kubelet.

    is_registered: whether the kubelet can allocate its devices. connected_seconds: how long the
    kubelet has been connected; None without a connection. problem: why the kubelet cannot connect, if known.
    """

    is_registered: bool
    connected_seconds: float | None
    problem: str | None = None


class Custody(Protocol):
    """Learns which devices a frontend gives to containers, and whether they still are the same devices."""

    def allocated(self, resource: str, kubelet_ids: Sequence[str]) -> None:
        """Note that a container gets these shares of a resource. Never waits."""

    async def why_changed(self, resource: Resource, kubelet_ids: Sequence[str]) -> str | None:
        """Why a container that was given these shares by their paths would get other devices now; None if it would
        not."""


class _NoCustody:
    def allocated(self, resource: str, kubelet_ids: Sequence[str]) -> None:
        pass

    async def why_changed(self, resource: Resource, kubelet_ids: Sequence[str]) -> str | None:
        return None


#: For a server that stands alone.
NO_CUSTODY: Custody = _NoCustody()


class Frontend(Protocol):
    """One device API of the kubelet, for all resources of the node. Belongs to the running event loop."""

    async def run(self) -> None:
        """Serve every offered resource until cancelled. Raises the error that makes serving impossible."""

    def without_room(self, resource: Resource, staying: Sequence[Device], found: Sequence[Device]) -> Mapping[str, str]:
        """The devices in ``found`` that do not fit beside ``staying``: device id to the reason."""

    async def offer(self, table: DeviceTable) -> bool:
        """Offer a resource with its devices, replacing an earlier offer of the same name.

        Returns True if the kubelet's connection for the earlier offer continues with the new table.
        """

    async def withdraw(self, resource: str) -> None:
        """Stop offering a resource. resource: its name."""

    async def all_served(self) -> None:
        """Return once the kubelet can reach every offered resource."""

    def repeat(self) -> None:
        """Send all devices again, because an ended instance may have sent other devices."""

    def status(self, resource: str) -> ResourceStatus:
        """The status of a resource, by its name; a resource that is not offered is not registered."""
