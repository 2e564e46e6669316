"""What each offered id means, and whether a container may get it: one protocol for all changes of a device's meaning.

The kubelet counts held devices by resource and id alone, and gives a restarting container what it was given. So an id
keeps its meaning while a container holds it, and a device that a container holds is given out under no other id. The
order of a change:

1. A scan finds the devices (``DeviceScanner``), and ``judge`` compares their meanings with the record. A device whose
   meaning is in doubt is withheld at once.
2. The scanner writes the CDI specs. ``names`` tells it which names keep their former edits.
3. While a question is open, the resource manager asks the kubelet who holds what (``ask``, ``answer``).
4. ``judge`` decides again. A device that is free now waits until step 2 has written its spec.

The states of a device:

- Free: the id means the device behind its name. The record notes this before the id is offered.
- In doubt: the id means another device than the record says, or its device is recorded under another id. The plugin
  withholds the device, then asks the kubelet for the holders. The CDI spec stays as it is.
- Moved: a container holds the id, and another device is behind its name now. The spec stays as it is.
- Held: a container holds the device under another id.
- Meets: another id of this node leads to the same device node.

The record survives a restart of the plugin within one boot. After a reboot the id alone decides, because the kubelet
rejects a pod whose former device is unhealthy.
"""

from __future__ import annotations

import collections
import functools
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Callable, NamedTuple

from ..cdi.resolution import NO_SPECS, Resolution
from ..declaration import Device, Resource
from .holdings import HeldId, Holding, Tokens, matches
from .identity import Identity
from .reason import Reason

#: The kinds of the reasons, for metrics.
HELD_BY_ANOTHER_NAME, MOVED_AWAY, MET = "held by another name", "its device moved", "two ids lead to one device"
#: The reason for a device that may still be held by its former name, or with its former nodes.
IN_DOUBT = "the kubelet has not said yet which pods hold the device since before the change"
#: The holder of a device that the plugin allocated a moment ago: the kubelet lists its pod later.
ADMITTED = "a pod that the kubelet is admitting"
#: The holder's name for users who may not know the pod or claim.
_ANOTHER = "another pod or claim"
#: Seconds after an Allocate in which the kubelet may not list its pod yet.
_ADMISSION = 10.0

#: A resource and the id of its device.
OfferKey = tuple[str, str]


class ServedKey(NamedTuple):
    """A resource by its name, and the kubelet's API that serves it."""

    api: str
    name: str


class Offer(NamedTuple):
    """What an id means.

    whole: the identity of the device as a whole, such as a PCI address; empty if its host paths identify it. nodes: of
    its device nodes. mounts: the host paths of its bind mounts. cdi_name: in our specs; empty if it has none there.
    is_share: whether several containers may have the device. is_found: whether discovery finds the device.
    """

    whole: str
    nodes: tuple[Identity, ...]
    mounts: tuple[str, ...] = ()
    cdi_name: str = ""
    is_share: bool = False
    is_found: bool = False


def offer_of(
    resource: Resource, device: Device, found: Mapping[str, Identity], specs: Resolution = NO_SPECS
) -> Offer | None:
    """What an id of this device means; None while none of its nodes exists. found: identities by ``node_paths_of``."""
    paths = node_paths_of(device, specs)
    nodes = dict.fromkeys(found[path] for path in paths if path in found)
    if paths and not nodes:
        return None
    mounts = (mount.host_path for mount in device.container_edits.mounts if mount.is_bind)
    name = resource.cdi_name(device) or ""
    is_found = bool(resource.discover.methods) and not device.required
    return Offer(device.identity, tuple(nodes), tuple(sorted(mounts)), name, resource.replicas > 1, is_found)


def node_paths_of(device: Device, specs: Resolution = NO_SPECS) -> list[str]:
    """The host paths of the device's nodes, also of those that other programs' specs give with it."""
    foreign = (path for name in device.cdi_devices for path in specs.nodes(name))
    return [*(node.host_path for node in device.nodes), *foreign]


class SpecNames(NamedTuple):
    """Fully qualified names in our CDI specs. kept: their devices keep the edits that they have there. blocked: their
    device nodes belong to other devices now."""

    kept: frozenset[str] = frozenset()
    blocked: frozenset[str] = frozenset()


class Judgement(NamedTuple):
    """reasons: by resource, the id of each device that is not free, with why a container cannot get it.

    names: the CDI names that keep their former edits in our specs, and those with which no container may start.
    """

    reasons: Mapping[str, Mapping[str, str]] = MappingProxyType({})
    names: SpecNames = SpecNames()


class Now:
    """The identities that a scan has read.

    at: by host path, also of recorded nodes. ambiguous: see ``identity``. record: see Given.
    """

    def __init__(
        self,
        at: Mapping[str, Identity],
        ambiguous: Collection[str] = (),
        record: Mapping[OfferKey, Offer] = MappingProxyType({}),
    ) -> None:
        self.at, self.ambiguous, self._record = at, ambiguous, record

    def tokens(self, offer: Offer) -> frozenset[str]:
        """Texts that are equal for equal devices."""
        whole = (offer.whole,) if offer.whole else ()
        return frozenset([*whole, *map(self.token, offer.nodes), *offer.mounts])

    def token(self, identity: Identity) -> str:
        """The token of a recorded identity.

        If only its number identifies a node, the number tells what the node is now: it may have another path, or a name
        that sysfs did not have yet.
        """
        if identity.is_number:
            there = self.at.get(identity.path)
            is_there = there is not None and there.number == identity.number
            identity = there if there is not None and is_there else self._by_number.get(identity.number, identity)
        return identity.token(self.ambiguous)

    @functools.cached_property
    def _by_number(self) -> Mapping[str, Identity]:
        # A path with the same number that the record knows is a second path, and not the new one.
        known = {(each.number, each.path) for offer in list(self._record.values()) for each in offer.nodes}
        numbers = (each for each in self.at.values() if each.is_number)
        return {each.number: each for each in numbers if (each.number, each.path) not in known}

    def are_same(self, given: Offer, now: Offer) -> bool:
        """Whether two meanings of an id are one device. One more or one less host path makes no other device."""
        if given.whole and now.whole:
            return given.whole == now.whole
        before, after = self.tokens(given), self.tokens(now)
        return before <= after or after <= before

    def is_replaced(self, given: Offer) -> bool:
        """Whether the path of a given node leads to another device now."""
        there = ((each, self.at.get(each.path)) for each in given.nodes)
        return any(found and found.number and self.token(each) != self.token(found) for each, found in there)


class Given:
    """The record of what ids mean, and the judgement of each device. clock: returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        #: What each id meant when it was offered.
        self.record: dict[OfferKey, Offer] = {}
        #: Discovered ids that were offered since the boot and are gone; whether an operator has accepted the loss.
        self.missed: dict[OfferKey, bool] = {}
        #: Whether the record, or the kubelet, has told what was given before this process started.
        self.is_known = True
        self._clock = clock
        #: Ids whose meaning is open, and recorded ids that no resource has now, each with the question to wait for.
        self._open: dict[OfferKey, int] = {}
        self._lost: dict[OfferKey, int] = {}
        #: The number of the next question for the holders, and of the last one that was answered.
        self._next, self._answered = 1, 0
        self._holdings: Sequence[Holding] = ()
        #: What the plugin allocated, with the time, until an answer lists its pod, or must list it and does not.
        self._allocated: dict[tuple[ServedKey, HeldId], float] = {}
        #: Recorded ids that have all paths of their container, until they are judged: an answer is for several devices.
        self._guessed: set[OfferKey] = set()
        #: Whether no Allocate has come since the last judgement began.
        self.is_judged = True

    @property
    def is_any_open(self) -> bool:
        """Whether a question for the holders could make a device free, or a recorded id unused."""
        return any(number > self._answered for number in (*self._open.values(), *self._lost.values()))

    def paths(self, present: Sequence[Resource], specs: Resolution) -> dict[str, set[str]]:
        """By resource, the host paths whose identities ``judge`` needs."""
        found: dict[str, set[str]] = {}
        for resource in present:
            paths = (path for device in resource.devices for path in node_paths_of(device, specs))
            found.setdefault(resource.name, set()).update(paths)
        for (name, _device_id), offer in self.record.items():
            found.setdefault(name, set()).update(node.path for node in offer.nodes)
        for each in self._holdings:
            found.setdefault(each.resource, set()).update(each.given)
        return found

    def ask(self) -> int:
        """The number of a question that begins now. Its answer covers all ids that are open by now."""
        self._next += 1
        return self._next - 1

    def answer(self, question: int, holdings: Sequence[Holding]) -> None:
        """Note who holds what; a late answer to an earlier question is ignored."""
        if question < self._answered:
            return
        self._answered = question
        self._holdings, self.is_known = holdings, True
        listed = {((each.api, each.resource), each.held_id) for each in holdings}
        due = self._clock() - _ADMISSION
        self._allocated = {key: at for key, at in self._allocated.items() if key not in listed and at > due}

    def allocated(self, resource: Resource, held: Iterable[HeldId]) -> None:
        """Note what a container gets: the kubelet lists the pod only after it has the answer."""
        key = ServedKey(resource.api, resource.name)
        self._allocated.update(dict.fromkeys(((key, each) for each in held), self._clock()))
        self.is_judged = False

    def judge(
        self, present: Sequence[Resource], known: Collection[OfferKey], now: Now, specs: Resolution = NO_SPECS
    ) -> Judgement:
        """Judge each device; those that are free are recorded with their meaning.

        present: the resources with the devices that are there now. known: the ids of all devices of all resources,
        also of those that are gone.
        """
        self.is_judged = True
        offers = _offers(present, now, specs)
        self._guess(now)
        holdings = [each._replace(given=self._tokens(each, now)) for each in self._all_holdings()]
        own: dict[OfferKey, list[Holding]] = collections.defaultdict(list)
        for each in holdings:
            for key in each.keys:
                own[key].append(each)
        self._note_missed({resource.name for resource in present}, offers)
        self._forget_lost(known, own)
        tokens = {key: now.tokens(offer) for key, offer in offers.items()}
        moved, suspects = self._suspects(present, offers, tokens, now)
        self._open = {key: self._open.get(key, self._next) for key in suspects}
        # A device is in the last of these states that has a reason for it, else free.
        met = _met(present, now, own)
        in_doubt = dict.fromkeys((key for key in offers if self._open.get(key, 0) > self._answered), IN_DOUBT)
        parts = _parts(own, tokens, moved)
        held = {key: _held(who) for key, who in matches(present, [*holdings, *parts], tokens).items()}
        linked = _linked(present, now, moved)
        away = {key: _moved(own[key], self.record[key], offers[key], key in linked) for key in moved & own.keys()}
        verdicts: dict[OfferKey, str] = {**met, **in_doubt, **held, **away}
        if self.is_known:
            self._note_free({key: offer for key, offer in offers.items() if key not in verdicts}, own, now)
        stay = [*away, *(in_doubt.keys() - held.keys())]
        reasons: dict[str, dict[str, str]] = {resource.name: {} for resource in present}
        for (resource_name, device_id), reason in verdicts.items():
            reasons[resource_name][device_id] = reason
        return Judgement(reasons, self._names((offers[key].cdi_name for key in stay), verdicts, offers, now))

    def _note_free(self, free: Mapping[OfferKey, Offer], own: Collection[OfferKey], now: Now) -> None:
        """Record what free devices mean. own: the ids that containers hold, which keep all nodes that they gave."""
        for key, offer in free.items():
            if self.record.get(key) != offer:
                may_be_held = key in own or not self._answered
                self.record[key] = self._meant(key, offer, now) if may_be_held else offer
                self._guessed.discard(key)

    def _guess(self, now: Now) -> None:
        """Record what each held id without a record means: what its container was given."""
        for each in self._holdings:
            if each.is_ours and each.given and self.record.keys().isdisjoint(each.keys):
                nodes = tuple(now.at.get(path) or Identity(path) for path in sorted(each.given))
                self.record.update(dict.fromkeys(each.keys, Offer("", nodes, is_share=each.is_share)))
                self._guessed.update(each.keys)

    def _suspects(
        self, present: Sequence[Resource], offers: Mapping[OfferKey, Offer], tokens: Tokens, now: Now
    ) -> tuple[set[OfferKey], set[OfferKey]]:
        """The ids that mean another device than the record says, and all ids that a container may hold otherwise."""
        others = {key: offer for key, offer in self.record.items() if offers.get(key) != offer}
        moved = {key for key, offer in others.items() if key in offers and not now.are_same(offer, offers[key])}
        changed = {key for key, offer in others.items() if key in offers and offers[key].is_share != offer.is_share}
        stale = [
            Holding("", key[0], HeldId(key[1]), given, offer.is_share)
            for key, offer in others.items()
            if (given := now.tokens(offer) - (frozenset() if key in moved else tokens.get(key, frozenset())))
            or key not in offers
        ]
        return moved, {*moved, *changed, *matches(present, stale, tokens)}

    def held_of_others(self, served: Collection[ServedKey]) -> dict[ServedKey, dict[HeldId, str]]:
        """What containers hold of resources that we offered earlier, with the reason. served: those offered now."""
        held: dict[ServedKey, dict[HeldId, list[Holding]]] = {}
        ours = {resource for resource, _device_id in self.record}
        for each in self._all_holdings():
            key = ServedKey(each.api, each.resource)
            if each.is_ours and each.resource in ours and key not in served:
                held.setdefault(key, {}).setdefault(each.held_id, []).append(each)
        return {key: {each: _held(who) for each, who in by_id.items()} for key, by_id in held.items()}

    def _names(
        self, stay: Iterable[str], verdicts: Collection[OfferKey], offers: Collection[OfferKey], now: Now
    ) -> SpecNames:
        """See Judgement. stay: the names of devices that are there and whose spec stays as it is."""
        gone = (offer.cdi_name for key, offer in self.record.items() if key not in offers)
        away = {offer.cdi_name: offer for key, offer in self.record.items() if key in verdicts or key not in offers}
        blocked = frozenset(name for name, offer in away.items() if name and now.is_replaced(offer))
        return SpecNames(frozenset((*stay, *gone)) - blocked, blocked)

    def _all_holdings(self) -> list[Holding]:
        # Until an answer comes, which may take longer than the admission.
        found = list(self._holdings)
        for (api, resource), held_id in list(self._allocated):
            each = Holding(ADMITTED, resource, held_id, frozenset(), api=api)
            is_share = any(self.record[key].is_share for key in each.keys if key in self.record)
            found.append(each._replace(is_share=is_share))
        return found

    def _meant(self, key: OfferKey, offer: Offer, now: Now) -> Offer:
        """The meaning of a held id, with all nodes that its container was given, wherever they are now.

        Otherwise one node after the other could become another device.
        """
        given = self.record.get(key, offer)
        if key in self._guessed or (given.whole and given.whole == offer.whole):
            return offer
        there = {now.token(node): node for node in offer.nodes}
        return offer._replace(
            nodes=tuple(there.get(now.token(node), node) for node in given.nodes), mounts=given.mounts
        )

    def _tokens(self, holding: Holding, now: Now) -> frozenset[str]:
        for key in holding.keys:
            if key in self.record:
                return now.tokens(self.record[key])
        return frozenset(now.at[path].token(now.ambiguous) if path in now.at else path for path in holding.given)

    def _note_missed(self, resources: Collection[str], offers: Collection[OfferKey]) -> None:
        for key, offer in self.record.items():
            if offer.is_found and key not in offers:
                self.missed.setdefault(key, False)
        there = {key: accepted for key, accepted in self.missed.items() if key[0] in resources and key not in offers}
        self.missed = there

    def accept_losses(self, resources: Collection[str]) -> None:
        """Expect the discovered devices of these resources no longer that are gone."""
        self.missed = {key: accepted or key[0] in resources for key, accepted in self.missed.items()}

    def _forget_lost(self, known: Collection[OfferKey], own: Collection[OfferKey]) -> None:
        """Forget the ids that no resource has and no pod holds."""
        self._lost = {key: self._lost.get(key, self._next) for key in self.record if key not in known}
        for key, question in list(self._lost.items()):
            if question <= self._answered and key not in own:
                del self.record[key], self._lost[key]


def _offers(present: Sequence[Resource], now: Now, specs: Resolution) -> dict[OfferKey, Offer]:
    """What each id means, without the devices of which no node exists."""
    keys = (((resource.name, device.id), resource, device) for resource in present for device in resource.devices)
    made = {key: offer_of(resource, device, now.at, specs) for key, resource, device in keys}
    return {key: offer for key, offer in made.items() if offer is not None}


def _parts(own: Mapping[OfferKey, Sequence[Holding]], tokens: Tokens, moved: Set[OfferKey]) -> Iterator[Holding]:
    """What containers hold beside their devices: a node that belonged to a held device may be a device of its own."""
    for key in own.keys() & tokens.keys() - moved:
        for each in own[key]:
            if each.given - tokens[key]:
                yield each._replace(given=each.given - tokens[key])


def _met(present: Sequence[Resource], now: Now, own: Collection[OfferKey]) -> dict[OfferKey, Reason]:
    """The exclusive devices whose path leads to a node of another one, although both paths differ, with the reason.

    The device that a container holds keeps the node, else the first one.
    """
    leads: dict[str, dict[OfferKey, str]] = {}
    for resource in present:
        for device in resource.devices if resource.replicas == 1 else ():
            for node in device.nodes:
                if node.host_path in now.at:
                    leads.setdefault(now.at[node.host_path].path, {})[resource.name, device.id] = node.host_path
    found = {}
    for path, names in leads.items():
        if len(set(names.values())) > 1:
            keeper = next((key for key in names if key in own), next(iter(names)))
            other = "{} of {}={}".format(names[keeper], *keeper)
            for key, name in names.items():
                if name != names[keeper]:
                    found[key] = Reason(f"{MET}: {name} and {other} lead to {path}: declare one device", MET)
    return found


def _held(holdings: Iterable[Holding]) -> Reason:
    """A reason whose kind omits the pods, because each kind is a series, and readers of metrics must not see pods."""
    holders = {f"{each.holder} as {each.resource}" for each in holdings}
    # Only the names of pods and claims have a slash.
    told = {f"{_ANOTHER if '/' in each.holder else each.holder} as {each.resource}" for each in holdings}
    text, told_text = ("held by " + ", ".join(sorted(each)) for each in (holders, told))
    return Reason(text, HELD_BY_ANOTHER_NAME, told_text)


def _moved(holdings: Iterable[Holding], given: Offer, now: Offer, is_linked: bool) -> Reason:
    before, after = (", ".join(each.path for each in offer.nodes) or "no device node" for offer in (given, now))
    if before == after:
        leads = "another device has this path now"
    else:
        leads = f"its link now leads to {after}" if is_linked else f"its id now means {after}"
    held, means = _held(holdings), f" with {before}: {leads}"
    return Reason(held + means, MOVED_AWAY, held.told + means)


def _linked(present: Sequence[Resource], now: Now, moved: Collection[OfferKey]) -> set[OfferKey]:
    """The moved ids that lead to their nodes by links: declared ones, or ones that discovery followed."""
    return {
        (resource.name, device.id)
        for resource in present
        for device in resource.devices
        if (resource.name, device.id) in moved
        for node in device.nodes
        if (node.host_path in now.at and now.at[node.host_path].path != node.host_path)
        or (resource.discover.paths and node.path != node.host_path)
    }
