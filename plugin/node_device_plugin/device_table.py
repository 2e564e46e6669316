"""The devices of one resource as the kubelet is to see them, and news of their changes."""

from __future__ import annotations

import asyncio
from typing import Dict, List, Mapping, NamedTuple, Optional, Tuple

from .declaration import Device, Resource


class Listed(NamedTuple):
    """One line of the kubelet's list: a share of a device."""

    kubelet_id: str
    healthy: bool


class DeviceTable:
    """Which devices of a resource are listed, and why one is unhealthy.

    A device that is not required is left out until it was there once; after that it stays listed, unhealthy while it
    is away, because the kubelet goes on calling a dropped device healthy.
    """

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        #: Device id to the reason why it is unhealthy (None: healthy); listed devices only.
        self._reasons: Dict[str, Optional[str]] = {}
        self._changed = asyncio.Event()

    def update(self, reasons: Mapping[str, Optional[str]]) -> List[Tuple[Device, Optional[str]]]:
        """Take in what a check found: device id to the reason why it is unhealthy, or None.

        Returns the devices whose state is news, with the reason. Watchers wake only where something changed.
        """
        news = []
        for device in self.resource.devices:
            reason = reasons[device.id]
            if reason is not None and not device.required and device.id not in self._reasons:
                continue
            if device.id not in self._reasons or self._reasons[device.id] != reason:
                news.append((device, reason))
                self._reasons[device.id] = reason
        if news:
            self._changed.set()
            self._changed = asyncio.Event()
        return news

    def reason(self, device: Device) -> Optional[str]:
        """Why a device cannot be given away now; None where it can."""
        return self._reasons.get(device.id, "it is not on this node")

    def listed(self) -> Tuple[Listed, ...]:
        """Every share of every listed device, in the order of the declaration."""
        return tuple(
            Listed(kubelet_id, self._reasons[device.id] is None)
            for device in self.resource.devices
            if device.id in self._reasons
            for kubelet_id in self.resource.kubelet_ids(device)
        )

    async def changed(self, last: Optional[Tuple[Listed, ...]]) -> Tuple[Listed, ...]:
        """The list, as soon as it is another one than ``last``."""
        while True:
            changed = self._changed
            listed = self.listed()
            if listed != last:
                return listed
            await changed.wait()
