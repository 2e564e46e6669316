"""Device ids of the whole node: the kubelet tells devices apart by id alone, whatever their resource."""

from __future__ import annotations

from typing import Dict, Iterable, Optional


class DeviceIds:
    """Which resource has which id (as the kubelet lists it: one for each share of a device)."""

    def __init__(self) -> None:
        self._owners: Dict[str, str] = {}

    def claim(self, kubelet_ids: Iterable[str], resource: str) -> Optional[str]:
        """Take ids for a resource, all or none. Gives the other resource that has one of them, or None: taken."""
        wanted = list(kubelet_ids)
        for kubelet_id in wanted:
            owner = self._owners.get(kubelet_id, resource)
            if owner != resource:
                return owner
        self._owners.update(dict.fromkeys(wanted, resource))
        return None

    def release(self, resource: str) -> None:
        """Give back every id of a resource that is served no longer."""
        self._owners = {kubelet_id: owner for kubelet_id, owner in self._owners.items() if owner != resource}
