"""Finds devices that containers hold by a name the kubelet no longer counts: after a rename, a move or a removal.

The kubelet counts held devices by resource and id alone. If it gave a device as ``example.com/old``, the device is free
as ``example.com/new``, and the kubelet would give the device out a second time.
"""

from __future__ import annotations

import collections
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ..declaration import Device, Resource
from ..declaration.model import DEVICE_PLUGIN

#: By resource and device id: texts that identify what the device gives (``identity.Identity.token``).
Tokens = Mapping[tuple[str, str], frozenset[str]]


class HeldId(str):
    """The id by which the kubelet knows what a container holds: by default, of a whole device.

    An API whose ids are not those of devices has a subclass (kubelet/device_plugin/ids.py).
    """

    @property
    def device_ids(self) -> tuple[str, ...]:
        """The devices that the id may mean; one of them is right."""
        return (str(self),)

    def is_of(self, resource: Resource, device: Device) -> bool:
        """Whether the kubelet knows this device of the resource by this id now."""
        return self == device.id and resource.replicas == 1


class Holding(NamedTuple):
    """A device that a container holds, as the kubelet knows it.

    holder: ``namespace/pod``, or ``claim namespace/name``. given: what the container got from this device alone, as
    host paths or as tokens; empty if there is nothing or it is unknown. is_share: whether other containers may have the
    device, too. is_ours: whether our plugin gave the device, so that its id identifies it. api: the kubelet's API
    through which the container got the device.
    """

    holder: str
    resource: str
    held_id: HeldId
    given: frozenset[str]
    is_share: bool = False
    is_ours: bool = True
    api: str = DEVICE_PLUGIN

    @property
    def keys(self) -> list[tuple[str, str]]:
        """The devices that the held id may mean, by resource and id."""
        return [(self.resource, device_id) for device_id in self.held_id.device_ids]


class _Offered(NamedTuple):
    """An offered device. tokens: of all that it gives. own: the tokens that no other offered device gives."""

    resource: Resource
    device: Device
    tokens: frozenset[str]
    own: frozenset[str]

    def has_name_of(self, holding: Holding) -> bool:
        """Whether the kubelet counts the holding for this device: API, resource and id are the same."""
        is_same = (self.resource.api, self.resource.name) == (holding.api, holding.resource)
        return is_same and holding.held_id.is_of(self.resource, self.device)

    def is_counted(self, holding: Holding) -> bool:
        """Whether the kubelet itself keeps the held device from others: its name still means the same device."""
        return self.has_name_of(holding) and self._is_nested(holding)

    def is_held(self, holding: Holding, tokens: Collection[str]) -> bool:
        """Whether the container has this device. tokens: of the holding, without tokens that several devices give."""
        if self.own.isdisjoint(tokens):
            is_same_id = any(device_id == self.device.id for _resource, device_id in holding.keys)
            return is_same_id and holding.is_ours and not (self.own and tokens)
        # Which of a container's CDI names belongs to the held device may be unknown; then it has the tokens of all.
        # If all other devices are gone, one device alone may give a shared node such as /dev/vfio/vfio.
        return self._is_nested(holding) or bool(self.device.cdi_devices and self.own <= holding.given)

    def is_withheld(self, holding: Holding) -> bool:
        """Whether others must not get this device, which the container has under a name that the kubelet ignores."""
        # The scheduler counts only the shares of a claim that the ResourceSlices show.
        by_kubelet = self.resource.api == holding.api == DEVICE_PLUGIN
        stays_shared = by_kubelet and self.resource.replicas > 1 and holding.is_share
        return not (self.has_name_of(holding) or stays_shared)

    def _is_nested(self, holding: Holding) -> bool:
        """Whether one side gives all that the other gives, also if it gives nothing that tells devices apart."""
        return holding.given <= self.tokens or self.tokens <= holding.given


def matches(
    resources: Sequence[Resource], holdings: Sequence[Holding], tokens: Tokens
) -> dict[tuple[str, str], list[Holding]]:
    """The devices that are held under another name, by resource and id, each with its holdings.

    Two names mean one device if they give a token that no other device gives, and the tokens of one include all tokens
    of the other. If either has no such token, the id decides. A device that was or is exclusive is withheld until it is
    free. A device that was shared and still is keeps all its shares. With DRA, it is withheld until a share that is no
    longer declared is free.

    resources: with all their devices. holdings: what they give, as tokens. tokens: of each device of the resources.
    """
    givers = collections.Counter(token for given in tokens.values() for token in given)
    offered: dict[tuple[str, str], _Offered] = {}
    for resource in resources:
        for device in resource.devices:
            gives = tokens.get((resource.name, device.id), frozenset())
            own = frozenset(token for token in gives if givers[token] == 1)
            offered[resource.name, device.id] = _Offered(resource, device, gives, own)
    counted: list[Holding] = []
    uncounted: list[Holding] = []
    for holding in holdings:
        is_counted = any(key in offered and offered[key].is_counted(holding) for key in holding.keys)
        (counted if is_counted else uncounted).append(holding)
    if not uncounted:
        return {}
    # A container's tokens may be those of several devices, and the kubelet counts some of them itself.
    not_again = {(holding.holder, key) for holding in counted if holding.holder for key in holding.keys}
    by_token = {token: key for key, each in offered.items() for token in each.own}
    by_id = collections.defaultdict(list)
    for key in offered:
        by_id[key[1]].append(key)
    found: dict[tuple[str, str], list[Holding]] = {}
    for holding in uncounted:
        theirs = {token for token in holding.given if givers[token] < 2}
        # The few of thousands of devices that it may be, each once.
        by_name = (key for _resource, device_id in holding.keys for key in by_id[device_id])
        for key in dict.fromkeys((*(by_token[token] for token in theirs & by_token.keys()), *by_name)):
            is_known = (holding.holder, key) in not_again
            if offered[key].is_held(holding, theirs) and offered[key].is_withheld(holding) and not is_known:
                found.setdefault(key, []).append(holding)
    return found
