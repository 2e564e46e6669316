"""The devices of one resource as the kubelet is to see them, and news of their changes."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from ..declaration import Device, Resource
from ..declaration.response_size import LIMIT, listed_size
from .flap_damping import Flapping
from .ids import DeviceIds

log = logging.getLogger(__name__)

#: The reason of a device that was discovered once and is found no longer.
GONE = "gone"
#: The reason of a device about which its health command has said nothing so far; one that is shown stays as it is.
UNANSWERED = "its health command has not answered yet"
#: Refused devices that are named in the log at a time.
_MOST_TOLD = 10
_ABSENT = "it is not on this node"
_DIGITS = re.compile(r"([0-9]+)")


class Listed(NamedTuple):
    """One line of the kubelet's list: a share of a device."""

    kubelet_id: str
    healthy: bool
    #: None where it is not known.
    numa_node: Optional[int] = None


class DeviceTable:
    """Which devices of a resource are listed, and why one is unhealthy.

    A device that is not required is left out until it was there once; after that it stays listed, unhealthy while it
    is away, because the kubelet goes on calling a dropped device healthy. The same goes for discovered devices.

    resource: what is declared. ids: shared by the tables of a node. recovery_delay: seconds (see Flapping).
    clock: gives seconds, monotonic. former: the resource's table until now, whose ids are released; what it knew of
    devices that stay is known from the start.
    """

    def __init__(
        self,
        resource: Resource,
        ids: Optional[DeviceIds] = None,
        recovery_delay: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        former: Optional[DeviceTable] = None,
    ) -> None:
        #: The declared resource with every device that is or was here: declared order, then discovered ones by id.
        self.resource = resource
        #: Discovered devices that cannot be listed: id to the reason.
        self.refused: Dict[str, str] = {}
        self._declared = resource.devices
        self._ids = ids if ids is not None else DeviceIds()
        self._flapping = Flapping(recovery_delay, clock)
        self._discovered: Dict[str, Device] = {}
        self._gone: Set[str] = set()
        #: Device id to the reason why it is unhealthy (None: healthy); listed devices only.
        self._reasons: Dict[str, Optional[str]] = {}
        self._changed = asyncio.Event()
        self._places = _places(resource)
        for device in self._declared:
            self._ids.claim(resource.kubelet_ids(device), resource.name)
        self._successor: Optional[DeviceTable] = None
        if former is not None:
            self._inherit(former)

    def _inherit(self, former: DeviceTable) -> None:
        self._flapping.inherit(former._flapping)
        if former.resource.discover == self.resource.discover:
            self.set_devices(former._discovered.values())
        before = {device.id: device for device in former.resource.devices}
        for device in self.resource.devices:
            if before.get(device.id) == device and device.id in former._reasons:
                self._reasons[device.id] = former._reasons[device.id]

    def hand_over(self, successor: DeviceTable) -> None:
        """Let whoever waits for a change of this table wait for the other one's."""
        self._successor = successor
        self._wake()

    def set_devices(self, devices: Iterable[Device]) -> List[Tuple[Device, Optional[str]]]:
        """Take in what discovery finds now (all of it; declared devices are not its business).

        A device that has vanished is unhealthy at once, with the reason GONE. One that is new, or back, shows with the
        next ``update``: nothing is given away unchecked. Ids that the declaration or another resource has already are
        refused (see ``refused``). Returns news as ``update`` does.
        """
        found: Dict[str, Device] = {}
        refused: Dict[str, str] = {}
        declared = {device.id for device in self._declared}
        devices = list(devices)
        away = set(self._discovered) - {device.id for device in devices}
        staying = (*self._declared, *(self._discovered[device_id] for device_id in away))
        size = sum(listed_size(self.resource, device) for device in staying)
        for device in devices:
            size += listed_size(self.resource, device)
            if size > LIMIT:
                refused[device.id] = "the kubelet takes no list of more than %d bytes" % LIMIT
                continue
            owner = self.resource.name if device.id in declared or device.id in found else None
            owner = owner or self._ids.claim(self.resource.kubelet_ids(device), self.resource.name)
            if owner is None:
                found[device.id] = device
            else:
                refused[device.id] = "its id is one of %s already" % owner
        new = [(device_id, why) for device_id, why in refused.items() if self.refused.get(device_id) != why]
        for device_id, why in new[:_MOST_TOLD]:
            log.warning("%s: discovered device %s is refused: %s", self.resource.name, device_id, why)
        if len(new) > _MOST_TOLD:
            log.warning("%s: %d more discovered devices are refused", self.resource.name, len(new) - _MOST_TOLD)
        self.refused = refused
        self._gone = set(self._discovered) - set(found)
        if any(self._discovered.get(device_id) != device for device_id, device in found.items()):
            self._discovered.update(found)
            in_order = sorted(self._discovered.values(), key=lambda device: natural_order(device.id))
            self.resource = self.resource._replace(devices=(*self._declared, *in_order))
            self._places = _places(self.resource)
        return self.update(dict.fromkeys(self._gone, GONE))

    def update(self, reasons: Mapping[str, Optional[str]]) -> List[Tuple[Device, Optional[str]]]:
        """Take in what a check found: device id to the reason why it is unhealthy, or None; others stay as they are.

        Returns the devices whose state is news, with the reason. Watchers wake only where something changed.
        """
        news = []
        for device in self.resource.devices:
            if device.id not in reasons:
                continue
            found = GONE if device.id in self._gone else reasons[device.id]
            is_new = device.id not in self._reasons
            if found == UNANSWERED and not is_new:
                continue
            reason = self._flapping.judged(device.id, found, is_new, self._reasons.get(device.id))
            if reason is not None and not device.required and is_new:
                continue
            if is_new or self._reasons[device.id] != reason:
                news.append((device, reason))
                self._reasons[device.id] = reason
        if news:
            self._wake()
        return news

    def reason(self, device: Device) -> Optional[str]:
        """Why a device cannot be given away now; None where it can."""
        return self._reasons.get(device.id, _ABSENT)

    def devices_of(self, kubelet_ids: Iterable[str]) -> List[Device]:
        """The devices behind kubelet ids (in any order), each once, in the order of ``resource``.

        Raises KeyError with the first id that is no device of this resource.
        """
        return [self.resource.devices[place] for place in sorted({self._places[each] for each in kubelet_ids})]

    def listed(self) -> Tuple[Listed, ...]:
        """Every share of every listed device, in the order of ``resource``."""
        return tuple(
            Listed(kubelet_id, self._reasons[device.id] is None, device.numa_node)
            for device in self.resource.devices
            if device.id in self._reasons
            for kubelet_id in self.resource.kubelet_ids(device)
        )

    async def changed(self, last: Optional[Tuple[Listed, ...]]) -> Tuple[Listed, ...]:
        """The list, as soon as it is another one than ``last``."""
        while self._successor is None:
            changed = self._changed
            listed = self.listed()
            if listed != last:
                return listed
            await changed.wait()
        return await self._successor.changed(last)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _places(resource: Resource) -> Dict[str, int]:
    """Kubelet id to the place of its device: made once for each list, because Allocate has no time for it."""
    return {
        kubelet_id: place
        for place, device in enumerate(resource.devices)
        for kubelet_id in resource.kubelet_ids(device)
    }


def natural_order(text: str) -> List[Any]:
    """A key that sorts as people count: tty2 before tty10. Texts and numbers take turns in it."""
    parts: List[Any] = _DIGITS.split(text)
    parts[1::2] = map(int, parts[1::2])
    return parts
