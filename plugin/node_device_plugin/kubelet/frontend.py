"""The interface of a kubelet device API: device plugins (v1beta1), or DRA."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

from ..declaration import Configuration, Device, Resource
from ..devices.holdings import HeldId, Holding
from ..devices.table import DeviceTable


class ResourceStatus(NamedTuple):
    """The status of one resource with the kubelet.

    is_registered: whether the kubelet can allocate its devices. registered_seconds: for how long; None if it cannot.
    problem: why the resource cannot be registered, if known; or what is wrong with a registered resource.
    prepared: the number of claims that hold devices of the resource; None for an API without claims.
    """

    is_registered: bool
    registered_seconds: float | None
    problem: str | None = None
    prepared: int | None = None


class Held(NamedTuple):
    """What containers hold through one API.

    holdings: of our present and former resources, and of those that nobody offers. device_ids: the ids of all held
    devices. offered: the resources of which the kubelet has a free device. is_by_kubelet: whether the kubelet answered;
    otherwise its checkpoint tells, which may also list what is no longer held.
    """

    holdings: Sequence[Holding]
    device_ids: frozenset[str]
    offered: frozenset[str]
    is_by_kubelet: bool


class HoldersUnknown(Exception):
    """Nothing tells what containers hold; the message says why."""


class Frontend(Protocol):
    """One device API of the kubelet, for all resources that it serves here. Belongs to the running event loop."""

    #: Whether the node object's allocatable shows the number of devices.
    is_allocatable: bool

    async def run(self) -> None:
        """Serve every offered resource until cancelled. Raises the error that makes serving impossible."""

    async def settle(self, configuration: Configuration) -> None:
        """Reach the kubelet as a configuration says, before the first offer and after each reload.

        If the way to the kubelet is another one now, every earlier offer ends.
        """

    def without_room(self, resource: Resource, staying: Sequence[Device], found: Sequence[Device]) -> Mapping[str, str]:
        """The devices in ``found`` that do not fit beside ``staying``: device id to the reason."""

    def listed_ids(self, resource: Resource, device: Device) -> list[HeldId]:
        """The ids by which the kubelet knows a device."""

    async def offer(self, table: DeviceTable) -> bool:
        """Offer a resource with its devices, replacing an earlier offer of the same name.

        Returns True if the resource stays registered, now with the new table.
        """

    async def withdraw(self, resource: str, held: Mapping[HeldId, str]) -> bool:
        """Stop offering a resource. held: what containers may hold of it, each with the reason for the kubelet.

        Returns False if the frontend refuses: the resource stays registered without a free device, so that its
        containers can go on. The caller repeats the call until the frontend agrees.
        """

    async def held(self, own: Collection[str], spec_dirs: Sequence[str]) -> Held:
        """What containers hold through this API. Raises HoldersUnknown.

        own: the names of our present and former resources. spec_dirs: the directories of CDI specs.
        """

    async def all_served(self) -> None:
        """Return once the kubelet can reach every offered resource."""

    def repeat(self) -> None:
        """Send all devices again, because an ended instance may have sent other devices."""

    def status(self, resource: str) -> ResourceStatus:
        """The status of a resource, by its name; a resource that is not offered is not registered."""
