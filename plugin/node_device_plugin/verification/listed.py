"""Judges resources by the devices that the kubelet can give now, and proves them with containers.

What differs between the kubelet's APIs is in subclasses.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..declaration import Resource
from ..declaration.device_plugin_api import devices_of, kubelet_ids
from ..declaration.dra_api import MAX_CLAIMED
from ..declaration.model import DRA
from ..kubelet.losses import Loss, Offer
from ..kubelet.pod_resources import Holder, Listing
from ..runtime.client import CriClient
from ..runtime.errors import CriError
from . import looking
from .expected import Expected, missing
from .report import EMPTY, FAILED, IN_USE, UNPROVEN, Outcome, Row
from .scope import Scope
from .static_pod import is_proof


class Listed:
    """Implements judging.Judge. Proves resources first with other pods' containers, then with a new pod's.

    listing: of the devices that pods can get through this API, and of the containers that hold them.
    """

    kubelet = "running"
    problem = ""
    warnings: Sequence[str] = ()
    #: Where the devices are listed, for messages.
    where = ""

    def __init__(self, listing: Listing, scope: Scope) -> None:
        self._listing = listing
        self._scope = scope

    async def by_new_pod(self, resource: Resource, cri: CriClient) -> Outcome:
        """Prove a resource with a pod that this command creates."""
        raise NotImplementedError

    def unregistered(self, wanted: Expected) -> str:
        """Why no pod can get the resource; empty if the kubelet knows it."""
        if wanted.is_registered(self._listing):
            return ""
        return "expected the resource to be registered with the kubelet, found no such resource"

    def is_settled(self, wanted: Sequence[Expected]) -> bool:
        return all(
            sorted(self._listing.allocatable.get(each.resource.name, ())) == sorted(each.ids)
            and not self.unregistered(each)
            for each in wanted
        )

    def offer(self, wanted: Expected) -> Offer:
        return wanted.offer(self._listing)

    def judge(self, wanted: Expected, lost: Sequence[Loss]) -> Row:
        resource, withheld, ids = wanted.resource, wanted.withheld, wanted.ids
        found = self._listing.allocatable.get(resource.name, ())
        row = Row(resource.name, len(ids), len(found), (), EMPTY, "", absent=wanted.absent)
        unregistered = self.unregistered(wanted)
        if unregistered:
            return row._replace(state=FAILED, detail=unregistered)
        # A pod may have ended after the plugin was asked.
        freed = {share for each in resource.devices if each.id in withheld for share in kubelet_ids(resource, each)}
        absent, foreign = sorted(set(ids) - set(found)), sorted(set(found) - set(ids) - freed)
        details = []
        if absent or foreign:
            detail = "expected %d healthy devices %s, found %d" % (len(ids), self.where, len(found))
            for what, those in (("missing", absent), ("not declared", foreign)):
                if those:
                    detail += " ({}: {})".format(what, " ".join(those))
            details.append(detail)
        details += missing(self.offer(wanted), [device.id for device in devices_of(resource, absent)], lost)
        if details:
            return row._replace(state=FAILED, detail="; ".join(details))
        if withheld:
            # Do not prove the resource now: a proof checks all declared devices, but the plugin offers fewer.
            detail = "; ".join(f"{device}: {why}" for device, why in sorted(withheld.items()))
            return row._replace(state=IN_USE, detail=detail)
        if not found:
            return row
        shares = free_shares(resource, self._listing, self._scope)
        if shares:
            return row._replace(state=UNPROVEN, shares=shares)
        return row._replace(state=IN_USE, detail=held_by(resource, self._listing))

    async def prove(self, resources: Sequence[Resource], rows: Mapping[str, Row]) -> Mapping[str, Outcome]:
        outcomes: dict[str, Outcome] = {}
        resources = [each for each in resources if each.name in rows]
        if not resources:
            return outcomes
        async with CriClient(self._scope.runtime_socket) as cri:
            try:
                there = await looking.running(cri)
                for resource in resources:
                    holders = [holder for holder in self._listing.holders if holder.resource == resource.name]
                    if self._scope.proof_pods:
                        outcomes[resource.name] = await self._of_proof_pod(there, resource, holders)
                        continue
                    everyone = self._scope.devices == "all"
                    # Ignore containers of other proofs, because they end too soon.
                    others = [holder for holder in holders if not is_proof(holder.pod)]
                    found = await there.find(resource, others, everyone)
                    shares = rows[resource.name].shares
                    if found.seen and not (everyone and shares):
                        outcomes[resource.name] = Outcome(found.seen)
                    elif not shares and (found.mismatches or found.unproven):
                        why = "; of ".join(found.mismatches or [found.unproven])
                        why = f"no device is free, and a container of {why}"
                        outcomes[resource.name] = Outcome(unproven=why)
                    elif shares:
                        proof = await self.by_new_pod(resource, cri)
                        outcomes[resource.name] = _together(found, proof)
            except CriError as error:
                for resource in resources:
                    outcomes.setdefault(resource.name, Outcome(unproven=str(error)))
        return outcomes

    async def _of_proof_pod(self, there: looking.Containers, resource: Resource, holders: Sequence[Holder]) -> Outcome:
        for holder in holders:
            if f"{holder.namespace}/{holder.pod}" in self._scope.proof_pods:
                outcome = await there.outcome(resource, holder, looking.SETTLE)
                return outcome or Outcome(unproven="the proof's container ended before the check")
        return Outcome(unproven="the proof's pod no longer holds a device of this resource")


def free_shares(resource: Resource, listing: Listing, scope: Scope) -> int:
    """The number of shares that a proof may request."""
    held = listing.held(resource.name)
    free = sum(kubelet_id not in held for kubelet_id in listing.allocatable.get(resource.name, ()))
    wanted = free if scope.devices == "all" else min(free, 1)
    most = MAX_CLAIMED if resource.api == DRA else resource.container_limit
    return min(wanted, most or wanted)


def held_by(resource: Resource, listing: Listing) -> str:
    """The pods that hold devices of a resource, as text."""
    return "by {}".format(", ".join(sorted(set(listing.held(resource.name).values()))))


def _together(found: Outcome, proof: Outcome) -> Outcome:
    """The outcome of a proof, combined with the outcome of other pods' containers."""
    seen = tuple(dict.fromkeys([*found.seen, *proof.seen]))
    if proof.unproven and found.mismatches:
        return Outcome(seen, (), "{}; a container of {}".format(proof.unproven, "; of ".join(found.mismatches)))
    return proof._replace(seen=seen)
