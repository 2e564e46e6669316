"""Judges which expected devices a node has lost. ``verify``, ``doctor`` and ``status`` use this verdict.

Expected are the devices that pods hold, a device for each running container that requests one, the number of devices
that the declaration requires, and, as a warning, the discovered devices that were offered since the boot.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ..declaration.device_plugin_api import devices_behind
from ..devices.health import CdiNames, reason_of
from ..support.bounded_calls import BoundedCalls, Key
from ..support.tables import counted
from .queries import DeviceNames, HeldDevice, Holders

#: Maximum number of reasons in one sentence.
_MOST_TOLD = 5
_MISSED = (
    "{} was offered since the node's boot, and is lost: {}: attach it again, or accept its loss with "
    "node-device-plugin reload --forget-lost"
)
_NOT_FOUND = "the plugin no longer finds the device"


class Offer(NamedTuple):
    """A resource as it is offered now.

    min_devices: as declared. reasons: each known device with the reason why it is lost; None for a healthy device, and
    for one that is withheld because a container holds it under another name. left_out: devices that matched and are not
    offered, each with the reason. missed: discovered devices that were offered since the boot and are gone, each with
    the reason.
    """

    resource: str
    min_devices: int
    reasons: Mapping[str, str | None]
    left_out: Mapping[str, str] = MappingProxyType({})
    missed: Mapping[str, str] = MappingProxyType({})


class Loss(NamedTuple):
    """A lost device. text: one sentence without the resource. device: empty if only a number is missing.

    fails: whether the loss fails a verification; otherwise it is a warning.
    """

    resource: str
    device: str
    text: str
    fails: bool = True

    @property
    def level(self) -> str:
        """The word before the loss in a report for people."""
        return "problem" if self.fails else "warning"


def offers_of(plugin: Mapping[str, Any]) -> list[Offer]:
    """The offers in the running plugin's state (daemon.state). An earlier release's plugin has fewer keys."""
    return [
        Offer(
            each["name"],
            each.get("min_devices", 0),
            {
                device["id"]: None if device["state"] == "healthy" or device.get("withheld") else device["reason"]
                for device in each["devices"]
            },
            {**each["refused"], **each.get("left_out", {})},
            each.get("missed", {}),
        )
        for each in plugin["resources"]
    ]


async def losses(
    offers: Sequence[Offer], holders: Holders, unserved: Iterable[Loss], spec_dirs: Sequence[str]
) -> list[Loss]:
    """The losses of these resources. unserved: see requests. spec_dirs: where the runtime reads CDI specs."""
    known = {offer.resource: offer for offer in offers}
    # The checkpoint may list pods that have ended. It gives no namespace.
    held = [each for each in holders.held if each.resource in known and each.namespace]
    lost = await _lost(held if holders.source == "kubelet" else [], known, spec_dirs)
    found = [
        Loss(each.resource, each.device, f"{each.device}: {each.namespace}/{each.pod} holds it, but it is lost: {why}")
        for each, why in lost.items()
        if why is not None
    ]
    told = {(each.resource, device_id) for each in found for device_id in devices_behind(each.device)}
    found += [
        Loss(offer.resource, device_id, _MISSED.format(device_id, why), fails=False)
        for offer in offers
        for device_id, why in offer.missed.items()
        if (offer.resource, device_id) not in told
    ]
    found += unserved
    found += [_too_few(offer) for offer in offers if _number(offer) < offer.min_devices]
    order = list(known)
    return sorted(dict.fromkeys(found), key=lambda loss: order.index(loss.resource))


async def _lost(
    held: Sequence[HeldDevice], offers: Mapping[str, Offer], spec_dirs: Sequence[str]
) -> dict[HeldDevice, str | None]:
    """Each held device with the reason why it is lost; None if it is not lost.

    A device that is no longer declared is not lost while its CDI names resolve and its host paths exist.
    """
    found: dict[HeldDevice, str | None] = {}
    unknown: dict[Key, HeldDevice] = {}
    for each in held:
        reasons = offers[each.resource].reasons
        offered = [device_id for device_id in devices_behind(each.device) if device_id in reasons]
        if offered:
            found[each] = reasons[offered[0]]
        else:
            unknown[Key(each.resource, f"{each.device} of {each.namespace}/{each.pod} {each.container}")] = each
    if unknown:
        calls, names = BoundedCalls(), CdiNames(spec_dirs)
        read = functools.partial(names.read, {name for each in unknown.values() for name in each.cdi_names})
        unread = (await calls.run([(names.key, read)]))[names.key] if spec_dirs else None
        looks = [(key, functools.partial(_broken, each, names)) for key, each in unknown.items()]
        for key, answer in (await calls.run(looks)).items():
            why = reason_of(unread) or reason_of(answer)
            found[unknown[key]] = why and f"{_NOT_FOUND}, and {why}"
    return found


def _broken(held: HeldDevice, names: CdiNames) -> str | None:
    """What is missing of a given device, by its CDI names and host paths; None if nothing is missing."""
    its = DeviceNames(held.cdi_names).of(devices_behind(held.device))
    broken = next(filter(None, map(names.problem, its)), None) if names.is_known else None
    gone = next((path for path in held.all_host_paths if not os.path.lexists(path)), None)
    return broken or (gone and f"{gone} does not exist")


def _number(offer: Offer) -> int:
    return sum(reason is None for reason in offer.reasons.values())


def _too_few(offer: Offer) -> Loss:
    lost = {device_id: why for device_id, why in offer.reasons.items() if why is not None}
    reasons = [f"{device_id}: {why}" for device_id, why in {**offer.left_out, **lost}.items()]
    more = [f"and {len(reasons) - _MOST_TOLD} more"] if len(reasons) > _MOST_TOLD else []
    expected = f"expected at least {counted(offer.min_devices, 'device')} (min_devices), found {_number(offer)}"
    return Loss(offer.resource, "", "; ".join([expected, *reasons[:_MOST_TOLD], *more]))
