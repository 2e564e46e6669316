"""Judges and proves resources through the kubelet's device plugin API."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ..declaration import Configuration, Resource
from ..declaration.device_plugin_api import devices_of, kubelet_ids
from ..kubelet import queries as kubelet_queries
from ..kubelet.checkpoint import CheckpointError
from ..kubelet.losses import Loss, Offer
from ..kubelet.pod_resources import Holder, Listing, PodResourcesError
from ..runtime.client import CriClient
from ..runtime.errors import CriError
from . import looking, proof_by_kubelet
from .expected import Expected, missing
from .report import EMPTY, FAILED, IN_USE, UNPROVEN, Outcome, Row
from .scope import Runtime, Scope
from .slots import NEEDED, SlotCounter
from .static_pod import is_proof


class DevicePlugins:
    """The device plugin API. Proves resources first with other pods' containers, then with static pods'.

    listing: the kubelet's lists.
    """

    kubelet = "running"
    problem = ""

    def __init__(self, listing: Listing, configuration: Configuration, runtime: Runtime, scope: Scope) -> None:
        self._listing = listing
        self._configuration = configuration
        self._runtime = runtime
        self._scope = scope
        self._slots = SlotCounter(scope.kubelet_kubeconfig, scope.max_pods)

    def is_settled(self, wanted: Sequence[Expected]) -> bool:
        return all(
            sorted(self._listing.allocatable.get(each.resource.name, ())) == sorted(each.ids)
            and each.is_registered(self._listing)
            for each in wanted
        )

    def offer(self, wanted: Expected) -> Offer:
        return wanted.offer(self._listing)

    def judge(self, wanted: Expected, lost: Sequence[Loss]) -> Row:
        resource, withheld, ids = wanted.resource, wanted.withheld, wanted.ids
        found = self._listing.allocatable.get(resource.name, ())
        row = Row(resource.name, len(ids), len(found), (), EMPTY, "", absent=wanted.absent)
        if not wanted.is_registered(self._listing):
            detail = "expected the resource to be registered with the kubelet, found no such resource"
            return row._replace(state=FAILED, detail=detail)
        # A pod may have ended after the plugin was asked.
        freed = {share for each in resource.devices if each.id in withheld for share in kubelet_ids(resource, each)}
        absent, foreign = sorted(set(ids) - set(found)), sorted(set(found) - set(ids) - freed)
        details = []
        if absent or foreign:
            detail = "expected %d healthy devices with the kubelet, found %d" % (len(ids), len(found))
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
        shares = _free_shares(resource, self._listing, self._scope)
        if shares:
            return row._replace(state=UNPROVEN, shares=shares)
        return row._replace(state=IN_USE, detail=_held_by(resource, self._listing))

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
                        proof = await self._by_static_pod(resource, cri)
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

    async def _by_static_pod(self, resource: Resource, cri: CriClient) -> Outcome:
        directory, image = self._scope.static_pod_dir, self._runtime.image
        if image is None:
            return Outcome(unproven=self._runtime.no_image)
        if not self._scope.makes_static_pods:
            return Outcome(unproven="static pods are turned off (--no-static-pods)")
        if directory is None:
            return Outcome(
                unproven="the proof's pod needs a place: set --static-pod-dir to the kubelet's staticPodPath"
            )
        if not directory:
            return Outcome(unproven="the kubelet runs no static pods: set staticPodPath in its configuration")
        if not os.path.isdir(directory):
            return Outcome(unproven=f"the kubelet's static pod directory {directory} does not exist")
        try:
            # Count the free shares again, because a static pod that requests more than is free ends another pod.
            now = await kubelet_queries.listing(self._scope.kubelet_root, self._configuration.kubelet_device_plugin_dir)
        except (PodResourcesError, OSError, CheckpointError) as error:
            return Outcome(unproven=str(error))
        shares = _free_shares(resource, now, self._scope)
        if not shares:
            return Outcome(unproven=f"no device is free: all are in use {_held_by(resource, now)}")
        slots = await self._slots.count(now.pods)
        if isinstance(slots, str):
            return Outcome(unproven=slots)
        if slots.free < NEEDED:
            why = "the node has %d of %d pod slots free, but a static pod needs %d, or the kubelet may end another pod"
            return Outcome(unproven=why % (slots.free, slots.total, NEEDED))
        return await proof_by_kubelet.prove(resource, shares, cri, directory, image, self._scope)


def _free_shares(resource: Resource, listing: Listing, scope: Scope) -> int:
    """The number of shares that a proof may request."""
    held = listing.held(resource.name)
    free = sum(kubelet_id not in held for kubelet_id in listing.allocatable.get(resource.name, ()))
    wanted = free if scope.devices == "all" else min(free, 1)
    return min(wanted, resource.container_limit or wanted)


def _held_by(resource: Resource, listing: Listing) -> str:
    return "by {}".format(", ".join(sorted(set(listing.held(resource.name).values()))))


def _together(found: Outcome, proof: Outcome) -> Outcome:
    """The outcome of a proof, combined with the outcome of other pods' containers."""
    seen = tuple(dict.fromkeys([*found.seen, *proof.seen]))
    if proof.unproven and found.mismatches:
        return Outcome(seen, (), "{}; a container of {}".format(proof.unproven, "; of ".join(found.mismatches)))
    return proof._replace(seen=seen)
