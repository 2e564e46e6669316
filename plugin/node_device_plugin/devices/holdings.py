"""Finds devices that containers hold by a name the kubelet no longer counts: after a rename, a move or a removal.

The kubelet counts held devices by resource and id alone. If it gave a device as ``example.com/old``, the device is free
as ``example.com/new``, and the kubelet would give the device out a second time.
"""

from __future__ import annotations

import collections
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ..declaration import Device, Resource
from ..declaration.model import DEVICE_PLUGIN, Share

#: By resource and device id: texts that identify what the device gives (``identity.Identity.token``).
Tokens = Mapping[tuple[str, str], frozenset[str]]


class Holding(NamedTuple):
    """A device that a container holds, as the kubelet knows it.

    holder: ``namespace/pod``. shares: what the kubelet's id may mean; one of them is right. given: what the container
    got from this device alone, as host paths or as tokens; empty if there is nothing or it is unknown. is_share:
    whether other containers may have the device, too. is_ours: whether our plugin gave the device, so that its id
    identifies it. api: the kubelet's API through which the container got the device.
    """

    holder: str
    resource: str
    shares: tuple[Share, ...]
    given: frozenset[str]
    is_share: bool = False
    is_ours: bool = True
    api: str = DEVICE_PLUGIN

    @property
    def device_ids(self) -> list[str]:
        """The ids of the device that this may be."""
        return [share.device for share in self.shares]


def matches(
    resources: Sequence[Resource], holdings: Sequence[Holding], tokens: Tokens
) -> dict[tuple[str, str], list[Holding]]:
    """The devices that are held under another name, by resource and id, each with its holdings.

    Two names mean one device if they give a token that no other device gives, and the tokens of one include all tokens
    of the other. If either has no such token, the id decides. A device that was or is exclusive is withheld until it is
    free. A device that was shared and still is keeps all its shares.

    resources: with all their devices. holdings: what they give, as tokens. tokens: of each device of the resources.
    """
    offered = {(resource.name, device.id): device for resource in resources for device in resource.devices}
    counted = {resource.name: resource for resource in resources}
    foreign = [holding for holding in holdings if not _is_counted(holding, counted, offered, tokens)]
    if not foreign:
        return {}
    # A container's tokens may be those of several devices, and the kubelet counts some of them itself.
    uncounted = set(map(id, foreign))
    by_themselves = {
        (holding.holder, holding.resource, device_id)
        for holding in holdings
        if holding.holder and id(holding) not in uncounted
        for device_id in holding.device_ids
    }
    givers = collections.Counter(token for given in tokens.values() for token in given)
    by_token: dict[str, _Place] = {}
    by_id: dict[str, list[_Place]] = {}
    for resource in resources:
        for device in resource.devices:
            every = tokens.get((resource.name, device.id), frozenset())
            place = _Place(resource, device, every, frozenset(token for token in every if givers[token] == 1))
            by_id.setdefault(device.id, []).append(place)
            by_token.update(dict.fromkeys(place.own, place))
    found: dict[tuple[str, str], list[Holding]] = {}
    for holding in foreign:
        theirs = {token for token in holding.given if givers[token] < 2}
        by_name = [place for name in holding.device_ids for place in by_id.get(name, ())]
        same = [by_token[token] for token in theirs if token in by_token]
        # If all other devices are gone, one device alone may give a shared node such as /dev/vfio/vfio.
        same = [place for place in same if _is_same(holding, place)]
        same += [place for place in by_name if holding.is_ours and not (theirs and place.own)]
        for place in same:
            if (holding.holder, place.resource.name, place.device.id) in by_themselves:
                continue
            # The kubelet counts this device itself, or the device was shared and still is.
            if _is_of(holding, place.resource, place.device) or (place.resource.replicas > 1 and holding.is_share):
                continue
            found.setdefault((place.resource.name, place.device.id), []).append(holding)
    return found


def _is_same(holding: Holding, place: _Place) -> bool:
    if place.device.cdi_devices and place.own <= holding.given:
        # Which of a container's CDI names belongs to the held device may be unknown; then it has the tokens of all.
        return True
    return holding.given <= place.every or place.every <= holding.given


class _Place(NamedTuple):
    """An offered device. every: its tokens. own: the tokens that no other device gives."""

    resource: Resource
    device: Device
    every: frozenset[str]
    own: frozenset[str]


def _is_counted(
    holding: Holding,
    resources: Mapping[str, Resource],
    offered: Mapping[tuple[str, str], Device],
    tokens: Tokens,
) -> bool:
    """Whether the kubelet itself keeps this device from others: its name is offered and still means the same device."""
    for device_id in holding.device_ids:
        device = offered.get((holding.resource, device_id))
        if device is not None and _is_of(holding, resources[holding.resource], device):
            now = tokens.get((holding.resource, device_id), frozenset())
            return not (now and holding.given) or now <= holding.given or holding.given <= now
    return False


def _is_of(holding: Holding, resource: Resource, device: Device) -> bool:
    is_same = (resource.api, resource.name) == (holding.api, holding.resource)
    return is_same and not set(holding.shares).isdisjoint(resource.shares(device))
