"""Works out which devices a node should offer, which of them the plugin withholds, and why some are missing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..declaration import Device, Resource
from ..declaration.device_plugin_api import devices_behind, kubelet_ids
from ..devices.discovery import Discovered
from ..devices.given import IN_DOUBT
from ..devices.health import CdiNames, problem_of
from ..kubelet.losses import Loss, Offer
from ..kubelet.pod_resources import Listing
from ..kubelet.queries import HeldDevice
from ..status_api import client

_UNLISTED = "the kubelet does not list it as healthy"


class Expected(NamedTuple):
    """A resource, with discovered devices, as this node should offer it.

    problems: why a container cannot get a device, by the host alone. left_out: devices that matched and that discovery
    left out, each with the reason. held: the ids of the devices that pods hold. said: what the running plugin says of
    the resource; None if it says nothing.
    """

    resource: Resource
    problems: Mapping[str, str]
    left_out: Mapping[str, str]
    held: frozenset[str]
    said: Mapping[str, Any] | None = None

    @property
    def withheld(self) -> dict[str, str]:
        """The devices that the plugin does not offer, because pods hold them under a different name, with the reasons.

        A doubt is no such reason: it lasts until the kubelet has told the plugin who holds the device.
        """
        devices = (self.said or {}).get("devices", ())
        return {each["id"]: each["reason"] for each in devices if each.get("withheld") and each["reason"] != IN_DOUBT}

    @property
    def ids(self) -> list[str]:
        """The shares that the kubelet must list as allocatable: of required, held and usable optional devices."""
        withheld = self.withheld
        return [
            kubelet_id
            for device in self.resource.devices
            if device.id not in withheld
            and (device.required or device.id in self.held or device.id not in self.problems)
            for kubelet_id in kubelet_ids(self.resource, device)
        ]

    @property
    def absent(self) -> tuple[str, ...]:
        """Devices that nobody misses, each with the reason: optional devices; if no device is left, also left-out ones.

        A resource with devices usually leaves out some on purpose, such as the name ``all`` of a GPU.
        """
        ids = set(self.ids)
        optional = {
            each.id: self.problems[each.id]
            for each in self.resource.devices
            if each.id in self.problems and ids.isdisjoint(kubelet_ids(self.resource, each))
        }
        return tuple(f"{device_id}: {why}" for device_id, why in {**({} if ids else self.left_out), **optional}.items())

    def is_registered(self, listing: Listing) -> bool:
        """Whether the kubelet knows the resource, also without a device."""
        return listing.knows(self.resource.name, None if self.said is None else self.said["registered"])

    def offer(self, listing: Listing | None) -> Offer:
        """The resource as the kubelet lists it; without a list, as the host alone allows."""
        said, withheld = self.said or {}, self.withheld
        said_reasons = {device["id"]: device["reason"] for device in said.get("devices", ())}
        listed = set(listing.allocatable.get(self.resource.name, ())) if listing else None

        def why(device: Device) -> str | None:
            if device.id in withheld:
                return None
            if listed is None:
                return self.problems.get(device.id)
            if not listed.isdisjoint(kubelet_ids(self.resource, device)):
                return None
            return said_reasons.get(device.id) or self.problems.get(device.id) or _UNLISTED

        reasons = {device.id: why(device) for device in self.resource.devices}
        missed = said.get("missed", {})
        declared = self.resource
        return Offer(declared.name, declared.min_devices, reasons, self.left_out, missed, declared.api)


def expected(resource: Resource, found: Discovered | None, held: Iterable[HeldDevice], names: CdiNames) -> Expected:
    """What this node should offer of a resource, before the plugin is asked.

    resource: with discovered devices. found: the result of its discovery. held: what pods hold of all resources.
    """
    of_pods = {
        device_id for each in held if each.resource == resource.name for device_id in devices_behind(each.device)
    }
    problems = {device.id: why for device in resource.devices if (why := problem_of(resource, device, names))}
    left_out = {device.id: why for device, why in found.left_out} if found else {}
    return Expected(resource, problems, left_out, frozenset(of_pods))


async def said_by_plugin(device_plugin_dir: str) -> dict[str, Any]:
    """What the running plugin says of each resource (daemon.state), by name; empty if no plugin answers."""
    try:
        state = await client.ask(device_plugin_dir, "GET", "/status")
    except client.NotAnswering:
        return {}
    return {each["name"]: each for each in state["resources"]}


def missing(offer: Offer, device_ids: Sequence[str], lost: Sequence[Loss]) -> list[str]:
    """The reasons for missing devices. lost: the resource's losses, which come first and name the devices' holders."""
    told = {device_id for loss in lost for device_id in devices_behind(loss.device)}
    others = {each: offer.reasons.get(each) for each in device_ids if each not in told}
    known = [f"{device_id}: {why}" for device_id, why in others.items() if why not in (None, _UNLISTED)]
    return [*(loss.text for loss in lost), *known]
