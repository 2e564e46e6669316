"""The state of the devices of one resource: which were found, and why a device is unhealthy."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Callable

from ..declaration import Device, Resource
from ..telemetry.logs import Log
from .flap_damping import Flapping
from .reason import Reason, warn

log = Log(__name__)

#: Returns the found devices (third argument) that do not fit in a frontend with the staying
#: devices (second argument): device id to the reason.
WithoutRoom = Callable[[Resource, Sequence[Device], Sequence[Device]], Mapping[str, str]]
#: The reason for a discovered device that is no longer found.
GONE = "gone"
#: Seconds until a discovered device that is gone, and that no pod holds, may be forgotten.
FORGOTTEN_AFTER = 600.0
#: The reason until a device's health command has answered. A device already shown keeps its state.
UNANSWERED = "the health command has not finished yet"
_UNCHECKED = "the device was not checked yet"
_DIGITS = re.compile(r"([0-9]+)")


class DeviceTable:
    """Tracks the shown devices of a resource and their health. A frontend offers them to a kubelet.

    An optional device is not shown until it passed its checks once. After that, the device stays
    shown, unhealthy while it is away, because the kubelet keeps calling a dropped device healthy.
    The same applies to discovered devices until they are forgotten.

    resource: as declared. recovery_delay: seconds (see Flapping). clock: returns monotonic seconds.
    former: the resource's previous table; this table takes over the state of unchanged devices.
    without_room: the frontend's limit; this table leaves out the discovered devices that it
    names.
    """

    def __init__(
        self,
        resource: Resource,
        recovery_delay: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        former: DeviceTable | None = None,
        without_room: WithoutRoom = lambda _resource, _staying, _found: {},
    ) -> None:
        #: The resource as declared, and the seconds for Flapping.
        self.declared, self.recovery_delay = resource, recovery_delay
        #: The resource with all present and former devices: declared devices in their order, then
        #: discovered devices by id.
        self.resource = resource
        #: Discovered devices that do not fit in the frontend: id to the reason.
        self.left_out: Mapping[str, str] = {}
        #: Why the last discovery has not finished; None if it has.
        self.late: str | None = None
        self._without_room = without_room
        self._clock = clock
        self._flapping: Flapping = Flapping(recovery_delay, clock, former._flapping if former else None)
        self._discovered: dict[str, Device] = {}
        #: Discovered devices that are gone: id to the time when their loss was first seen.
        self._gone: dict[str, float] = {}
        #: Devices that matched and that discovery left out: id to the reason.
        self.not_offered: Mapping[str, str] = {}
        #: Device id to the reason why the device is unhealthy (None: healthy); shown devices only.
        self._reasons: dict[str, str | None] = {}
        #: Device id to the result of the last check; optional devices that have never passed one.
        self._never_shown: dict[str, str] = {}
        #: Device id to the reason, for devices that are or may be held under another name.
        self._held: Mapping[str, str] = {}
        #: Set at the next change, then replaced: take the event, read the table, await the event.
        self.change = asyncio.Event()
        if former is not None:
            self._inherit(former)

    def _inherit(self, former: DeviceTable) -> None:
        if former.resource.discover == self.resource.discover:
            self.set_devices(former._discovered.values())
            self._gone = dict(former._gone)
        before = {device.id: device for device in former.resource.devices}
        same = {device.id for device in self.resource.devices if before.get(device.id) == device}
        self._reasons.update((key, reason) for key, reason in former._reasons.items() if key in same)
        self._never_shown.update((key, reason) for key, reason in former._never_shown.items() if key in same)

    def set_devices(
        self, devices: Iterable[Device], left_out: Iterable[tuple[Device, str]] = ()
    ) -> list[tuple[Device, str | None]]:
        """Set the devices that discovery finds now. left_out: devices that matched, each with why it is not offered.

        This method ignores declared devices. A missing device is unhealthy at once, with the reason
        GONE. A new or returned device is shown at the next ``update``, so that no container gets an
        unchecked device. Returns the changes, like ``update``.
        """
        declared = {device.id for device in self.declared.devices}
        found = {device.id: device for device in devices if device.id not in declared}
        away = [device for device_id, device in self._discovered.items() if device_id not in found]
        # Known devices get room first, because the kubelet keeps calling a dropped device healthy.
        known_first = sorted(found.values(), key=lambda device: device.id not in self._discovered)
        self._leave_out(self._without_room(self.resource, (*self.declared.devices, *away), known_first))
        found = {device_id: device for device_id, device in found.items() if device_id not in self.left_out}
        now = self._clock()
        self.not_offered = {device.id: why for device, why in left_out}
        self._gone = {device_id: self._gone.get(device_id, now) for device_id in self._discovered.keys() - found.keys()}
        if any(self._discovered.get(device_id) != device for device_id, device in found.items()):
            self._discovered.update(found)
            self._discovered_changed()
        return self.update({device_id: self._why_gone(device_id) for device_id in self._gone})

    def _discovered_changed(self) -> None:
        in_order = sorted(self._discovered.values(), key=lambda device: natural_order(device.id))
        self.resource = self.declared._replace(devices=(*self.declared.devices, *in_order))
        # Wake the frontend, so that it reads the devices now instead of while a pod waits.
        self.wake()

    @property
    def present(self) -> Resource:
        """The resource without the devices that are gone: their paths may lead to other devices now."""
        if self._gone:
            there = (device for device in self.resource.devices if device.id not in self._gone)
            return self.resource._replace(devices=tuple(there))
        return self.resource

    def long_gone(self) -> frozenset[str]:
        """Ids of discovered devices that may be forgotten if no pod holds them."""
        due = self._clock() - FORGOTTEN_AFTER
        return frozenset(device_id for device_id, since in self._gone.items() if since <= due)

    def forget(self, device_ids: Collection[str]) -> None:
        """Forget these gone devices, which frees their room, and their ids for other resources."""
        for device_id in device_ids:
            self._discovered.pop(device_id, None)
            self._gone.pop(device_id, None)
            self._reasons.pop(device_id, None)
            self._never_shown.pop(device_id, None)
        self._flapping.forget(device_ids)
        self._discovered_changed()

    def _leave_out(self, left_out: Mapping[str, str]) -> None:
        new = [(device_id, why) for device_id, why in left_out.items() if self.left_out.get(device_id) != why]
        warn(log, self.resource.name, "left out a device", "left out more devices", new)
        self.left_out = left_out

    def update(self, reasons: Mapping[str, str | None]) -> list[tuple[Device, str | None]]:
        """Set check results. reasons: device id to the reason why it is unhealthy, or None.

        Other devices keep their state. Returns the devices whose state changed, with the
        reason. Wakes watchers only if a state changed.
        """
        news = []
        for device in self.resource.devices:
            if device.id not in reasons:
                continue
            found = self._why_gone(device.id) if device.id in self._gone else reasons[device.id]
            is_new = device.id not in self._reasons
            if found == UNANSWERED and not is_new:
                continue
            reason = self._flapping.judged(device.id, found, is_new, self._reasons.get(device.id))
            if reason is not None and not device.required and is_new:
                self._never_shown[device.id] = reason
                continue
            self._never_shown.pop(device.id, None)
            if is_new or self._reasons[device.id] != reason:
                self._reasons[device.id] = reason
                news.append((device, self.reason(device)))
        if news:
            self.wake()
        return news

    def _why_gone(self, device_id: str) -> str:
        why = self.not_offered.get(device_id)
        return Reason(f"{GONE}: {why}", GONE) if why else GONE

    @property
    def is_any_held(self) -> bool:
        """Whether any device is held under another name."""
        return bool(self._held)

    def set_held(self, held: Mapping[str, str]) -> list[tuple[Device, str | None]]:
        """Block devices because of their holders. held: device id to the reason.

        This state is separate from checks, so a released device is available at once.
        Returns the changes, like ``update``.
        """
        before, self._held = self._held, held
        changed = {name for name in (*before, *held) if before.get(name) != held.get(name)}
        news = [
            (device, self.reason(device))
            for device in self.resource.devices
            if device.id in changed and device.id in self._reasons
        ]
        if news:
            self.wake()
        return news

    def reason(self, device: Device) -> str | None:
        """Why a device cannot be given to a container now; None if it can."""
        reason = self._reasons.get(device.id, self._never_shown.get(device.id, _UNCHECKED))
        return reason or self._held.get(device.id)

    def shown(self) -> list[tuple[Device, str | None]]:
        """Every device that a kubelet may know, in the order of ``resource``, with the reason if unhealthy."""
        return [(device, self.reason(device)) for device in self.resource.devices if device.id in self._reasons]

    def wake(self) -> None:
        """Wake every task that waits for a change."""
        self.change.set()
        self.change = asyncio.Event()


def natural_order(text: str) -> list[Any]:
    """A sort key for natural order: tty2 before tty10. Texts and numbers alternate in the key."""
    parts: list[Any] = _DIGITS.split(text)
    # Python refuses to read numbers of thousands of digits.
    parts[1::2] = ((len(digits), digits) for digits in (each.lstrip("0") for each in parts[1::2]))
    return parts
