"""Works out which devices a node should offer, which of them the plugin withholds, and why some are missing."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..cdi.resolution import Resolution
from ..declaration import Configuration, Device, Resource
from ..declaration.device_plugin_api import devices_behind, kubelet_ids
from ..devices import record
from ..devices.discovery import Discovered
from ..devices.given import Given, Now
from ..devices.health import CdiNames, problem_of
from ..devices.holdings import Holding
from ..devices.identity import Identities, ambiguous_serials
from ..kubelet.losses import Loss, Offer
from ..kubelet.queries import HeldDevice, Listing
from ..status_api import client
from ..support.sockets import SOCKET_DIRECTORY

_UNLISTED = "the kubelet does not list it as healthy"


class Expected(NamedTuple):
    """A resource, with discovered devices, as this node should offer it.

    ids: the shares that the kubelet must list as allocatable. withheld: devices that the plugin does not offer, because
    pods hold them under a different name, each with the reason. problems: why a container cannot get a device, by the
    host alone. left_out: devices that matched and that discovery left out, each with the reason.
    """

    resource: Resource
    ids: list[str]
    withheld: Mapping[str, str]
    problems: Mapping[str, str]
    left_out: Mapping[str, str]

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

    def offer(self, listing: Listing | None, said: Mapping[str, Any] | None) -> Offer:
        """The resource as the kubelet lists it; without a list, as the host alone allows.

        said: what the running plugin says of the resource; None if it says nothing.
        """
        said = said or {}
        said_reasons = {device["id"]: device["reason"] for device in said.get("devices", ())}
        listed = set(listing.allocatable.get(self.resource.name, ())) if listing else None

        def why(device: Device) -> str | None:
            if device.id in self.withheld:
                return None
            if listed is None:
                return self.problems.get(device.id)
            if not listed.isdisjoint(kubelet_ids(self.resource, device)):
                return None
            return said_reasons.get(device.id) or self.problems.get(device.id) or _UNLISTED

        reasons = {device.id: why(device) for device in self.resource.devices}
        return Offer(self.resource.name, self.resource.min_devices, reasons, self.left_out, said.get("missed", {}))


def expected(
    resource: Resource,
    found: Discovered | None,
    withheld: Mapping[str, str],
    held: Iterable[HeldDevice],
    names: CdiNames,
) -> Expected:
    """What this node should offer of a resource: its required and held devices, and optional devices that are usable.

    resource: with discovered devices. found: the result of its discovery.
    """
    of_pods = {
        device_id for each in held if each.resource == resource.name for device_id in devices_behind(each.device)
    }
    problems = {device.id: why for device in resource.devices if (why := problem_of(resource, device, names))}
    ids = [
        kubelet_id
        for device in resource.devices
        if device.id not in withheld and (device.required or device.id in of_pods or device.id not in problems)
        for kubelet_id in kubelet_ids(resource, device)
    ]
    left_out = {device.id: why for device, why in found.left_out} if found else {}
    return Expected(resource, ids, withheld, problems, left_out)


def withheld_now(
    configuration: Configuration, resources: Sequence[Resource], holdings: Sequence[Holding], specs: Resolution
) -> Mapping[str, Mapping[str, str]]:
    """By resource, the devices that no container can get until their holders end, with the reason of each.

    Reads files, so it must not run in the event loop. Raises OSError if the plugin's record cannot be read.
    """
    path = os.path.join(configuration.kubelet_device_plugin_dir, SOCKET_DIRECTORY, record.FILE_NAME)
    given = Given()
    recorded = record.load(path, configuration.dynamic_cdi_dir)
    given.record = recorded.offers if recorded else {}
    paths = frozenset().union(*given.paths(resources, specs).values(), *(each.given for each in holdings))
    at = Identities().read(paths)
    now = Now(at, ambiguous_serials(at.values()), given.record)
    known = {(resource.name, device.id) for resource in resources for device in resource.devices}
    # What this judgement finds open, the holders' answer clears up.
    given.judge(resources, known, now, specs)
    given.answer(given.ask(), holdings)
    return given.judge(resources, known, now, specs).reasons


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
