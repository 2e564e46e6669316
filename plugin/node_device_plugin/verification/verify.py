"""Runs a verification in this order: the runtime, the kubelet, then a container for each resource."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ..cdi import writer
from ..cdi.links import Links, node_paths
from ..cdi.resolution import Resolution
from ..declaration import Configuration, Resource, foreign_cdi
from ..declaration.device_plugin_api import devices_of, kubelet_ids
from ..devices.discovery import Discoverer, with_discovered
from ..devices.health import CdiNames
from ..kubelet import queries as kubelet_queries
from ..kubelet.checkpoint import CheckpointError
from ..kubelet.losses import Loss, Offer, losses
from ..kubelet.pod_resources import Holder, PodResourcesError
from ..kubelet.requests import unserved
from ..runtime import queries as runtime_queries
from ..runtime.client import CriClient
from ..runtime.errors import CriError
from ..support.bounded_calls import BoundedCalls, Key, NoAnswer, in_thread
from ..support.version import version
from . import containers, evidence, proof_by_kubelet, proof_by_runtime, restarts
from . import report as states
from .expected import Expected, Said, expected, missing, said_by_plugin
from .looking import SETTLE, Outcome
from .proof_record import Record, read_file
from .report import Report, Row
from .slots import NEEDED, SlotCounter
from .static_pod import is_proof, remove_leftovers
from .withheld import withheld

#: Maximum seconds for the search for devices while it uses the CPU.
_BUSY = 60.0
#: Seconds between two reads of the kubelet's lists.
_LOOK = 0.2
#: The name of a runtime that does not answer.
_UNKNOWN = "unknown"


class Node(NamedTuple):
    """The paths and settings of this node.

    static_pod_dir: empty if the kubelet runs no static pods; None if the caller does not know. image: None for the
    runtime's sandbox image. kubelet_kubeconfig, max_pods: see SlotCounter. makes_static_pods: whether proofs may create
    static pods; leftovers of killed proofs are removed in any case.
    """

    runtime_socket: str
    kubelet_root: str
    static_pod_dir: str | None
    image: str | None
    kubelet_kubeconfig: str | None = None
    max_pods: int | None = None
    makes_static_pods: bool = True


class Scope(NamedTuple):
    """The scope of the proofs.

    devices: ``one`` free share of each resource, or ``all`` free shares.
    unproven_only: skip a resource if the file ``record`` lists its current state as proven.
    timeout: seconds until the kubelet's lists must match the declaration, and again for each proof.
    plugin: text for the record that identifies the plugin. proof_pods: pods (namespace/name) that were created for the
    proof; if given, only their containers are inspected. invocation: see restarts; None to not check it.
    """

    devices: str
    unproven_only: bool
    record: str | None
    timeout: float
    plugin: str = ""
    proof_pods: tuple[str, ...] = ()
    invocation: str | None = None


class _Runtime(NamedTuple):
    """The runtime's name and version, the image for proofs, and whether the runtime injects CDI devices.

    image: None if the node has no image; ``no_image`` is then the reason.
    """

    name: str
    image: str | None
    gives_cdi: bool
    no_image: str = ""


class _NoListing(NamedTuple):
    """The kubelet's lists are missing.

    problem: text for the report. why: text for each row. state: the kubelet's state for the report.
    """

    problem: str
    why: str = "the kubelet does not answer"
    state: str = "not answering"


async def verify(configuration: Configuration, node: Node, scope: Scope) -> Report:
    """Verify this node against ``configuration``. The report contains every problem, and none raises an exception."""
    # Discover the expected devices with the plugin's own code.
    offered = functools.partial(writer.offered, configuration.dynamic_cdi_dir)
    links = Links(BoundedCalls(busy=_BUSY))
    discoverer = Discoverer(links)
    found = await discoverer.discover(configuration.resources, offered, spec_dirs=configuration.cdi_spec_dirs)
    resources = [
        with_discovered(each, found[each.name].devices) if each.name in found else each
        for each in configuration.resources
    ]
    names = CdiNames(configuration.cdi_spec_dirs)
    needed = [name for resource in resources for device in resource.devices for name in resource.cdi_names(device)]
    await in_thread(names.read, needed)
    resources = [names.resolution.with_foreign_nodes(resource) for resource in resources]
    problems = ["{}: {}".format(*late) for late in discoverer.late.items()]
    # Remove leftovers before reading the holders, because a leftover's pod still runs and holds a device.
    await _without_leftovers(node, scope.timeout, problems)
    proven_before = read_file(scope.record)
    record = Record(proven_before, " ".join(filter(None, [version(), scope.plugin])))
    runtime = await _runtime(node, resources, problems)
    if runtime.name != _UNKNOWN:
        record.keep_only(resources, runtime.name)
    held: Mapping[str, Mapping[str, str]] = {}
    state = kubelet_queries.Holders("none")
    try:
        state = await _holders(configuration, node, links)
        held = await _held_by_other_names(configuration, resources, state, links, names.resolution)
    except (OSError, CheckpointError) as error:
        problems.append(f"cannot find out which pods hold devices: {error}")
    wanted = [expected(each, found.get(each.name), held.get(each.name, {}), state.held, names) for each in resources]
    listing, said = await _listing(
        configuration, node, {each.resource.name: each.ids for each in wanted}, scope.timeout
    )
    listed = listing if isinstance(listing, kubelet_queries.Listing) else None
    offers = {each.resource.name: each.offer(listed, said.get(each.resource.name, Said())) for each in wanted}
    without = await unserved(node.kubelet_root, node.runtime_socket, state, list(offers))
    places = (*configuration.cdi_spec_dirs, configuration.dynamic_cdi_dir) if configuration.cdi_spec_dirs else ()
    lost = await losses(list(offers.values()), state, without, places)
    outcomes: dict[str, Outcome] = {}
    if isinstance(listing, _NoListing):
        problems.append(f"kubelet: {listing.problem}")
        # Do not prove by the runtime here: a kubelet that recovers would end our unknown sandboxes.
        kubelet = listing.state
        rows = [_pending(each, _of(lost, each), listing.why) for each in wanted]
    elif listing is None:
        rows = [_pending(each, _of(lost, each), "no kubelet yet") for each in wanted]
        outcomes = await _prove_by_runtime(resources, runtime, node, names)
        kubelet = "none"
    else:
        rows, unproven, registered = [], {}, _registered(listing, said)
        for each in wanted:
            resource = each.resource
            row = _judge(each, offers[resource.name], _of(lost, each), listing, resource.name in registered, scope)
            if row.state in (states.UNPROVEN, states.IN_USE) and not each.withheld:
                if not evidence.can_show(resource, resource.devices, with_annotations=True):
                    # A pod would prove nothing, and would be made again in each run.
                    why = evidence.why_none(resource, resource.devices)
                    row = row._replace(state=states.UNPROVEN, detail=why, shares=0)
                elif scope.unproven_only and record.holds(resource, runtime.name):
                    row = row._replace(state=states.PROVEN_BEFORE, detail="", shares=0)
                else:
                    unproven[resource.name] = row
            rows.append(row)
        of_kubelet = _OfKubelet(configuration, runtime, node, scope)
        outcomes = await of_kubelet.prove([each for each in resources if each.name in unproven], unproven, listing)
        for resource in resources:
            outcome = outcomes.get(resource.name)
            if outcome is not None and not outcome.unproven:
                record.note(resource, runtime.name, proven=not outcome.mismatches)
        kubelet = "running"
    problems.extend(f"{row.resource}: {row.detail}" for row in rows if row.state == states.FAILED)
    for name, outcome in outcomes.items():
        problems.extend(f"{name}: in a container: {mismatch}" for mismatch in outcome.mismatches)
    rows = [_with_outcome(row, outcomes) for row in rows]
    if scope.invocation:
        problems += filter(None, [await restarts.problem(scope.invocation)])
    warnings = [f"{resource.name}: {warning}" for resource in resources for warning in foreign_cdi.warnings(resource)]
    warnings += [f"{loss.resource}: {loss.text}" for loss in lost if not loss.fails]
    return Report(runtime.name, kubelet, rows, problems, record.proven, proven_before, runtime.image, warnings)


async def _without_leftovers(node: Node, timeout: float, problems: list[str]) -> None:
    """Remove the static pods of killed proofs, and wait until their devices are free."""
    if not node.static_pod_dir:
        return
    remove = functools.partial(remove_leftovers, node.static_pod_dir)
    try:
        names = await BoundedCalls().call(Key("", "static pods"), remove)
    except NoAnswer as error:
        problems.append(f"cannot remove the static pod of a killed proof: {node.static_pod_dir} {error}")
        return
    except OSError as error:
        problems.append(f"cannot remove the static pod of a killed proof: {error.filename}: {error.strerror}")
        return
    # Other checks report a runtime or a kubelet that does not answer.
    with contextlib.suppress(CriError, PodResourcesError):
        if names:
            async with CriClient(node.runtime_socket) as cri:
                waits = [proof_by_kubelet.gone(name, cri, node.kubelet_root, timeout) for name in names]
                await asyncio.gather(*waits)


def _pending(wanted: Expected, lost: Sequence[Loss], detail: str) -> Row:
    row = Row(wanted.resource.name, len(wanted.ids), 0, (), states.PENDING, detail, absent=wanted.absent)
    return row._replace(state=states.FAILED, detail="; ".join(loss.text for loss in lost)) if lost else row


def _of(lost: Sequence[Loss], wanted: Expected) -> list[Loss]:
    """The resource's losses that fail a verification."""
    return [loss for loss in lost if loss.fails and loss.resource == wanted.resource.name]


def _with_outcome(row: Row, outcomes: Mapping[str, Outcome]) -> Row:
    outcome = outcomes.get(row.resource)
    if outcome is None or row.state == states.FAILED:
        return row
    if outcome.unproven and row.state != states.PENDING:
        return row._replace(state=states.UNPROVEN, seen=outcome.seen, detail=outcome.unproven)
    if outcome.mismatches:
        return row._replace(state=states.FAILED, detail="; ".join(outcome.mismatches), shares=0)
    # Without a kubelet, a container proves only the runtime's part, so the resource stays pending.
    if row.state == states.PENDING:
        return row._replace(seen=outcome.seen)
    return row._replace(seen=outcome.seen, state=states.PROVEN, detail="", shares=0)


async def _holders(configuration: Configuration, node: Node, links: Links) -> kubelet_queries.Holders:
    places = (*configuration.cdi_spec_dirs, configuration.dynamic_cdi_dir)
    return await kubelet_queries.holders(node.kubelet_root, configuration.kubelet_device_plugin_dir, places, links)


async def _held_by_other_names(
    configuration: Configuration,
    resources: Sequence[Resource],
    state: kubelet_queries.Holders,
    links: Links,
    specs: Resolution,
) -> Mapping[str, Mapping[str, str]]:
    """Maps each resource to the devices that the plugin does not offer until their holders end, with reasons."""
    await links.look_at(node_paths(resources))
    holdings = kubelet_queries.holdings(state, [resource.name for resource in resources])
    return await in_thread(withheld, configuration, resources, holdings, specs)


async def _runtime(node: Node, resources: Sequence[Resource], problems: list[str]) -> _Runtime:
    try:
        state = await runtime_queries.runtime(node.runtime_socket)
        image, no_image = (
            state["sandbox_image"],
            "the runtime has no sandbox image yet; set verification_image to another image",
        )
        if node.image is not None:
            async with CriClient(node.runtime_socket) as cri:
                image = node.image if await cri.image(node.image) else None
            no_image = (
                f"the node has no image {node.image} (verification_image): pull it, because a proof pulls no image"
            )
    except CriError as error:
        problems.append(str(error))
        return _Runtime(_UNKNOWN, None, False, str(error))
    name = "{name} {version}".format(**state)
    by_cdi = [resource.name for resource in resources if resource.uses_cdi]
    gives_cdi = bool(state["cdi"]["enabled"])
    if by_cdi and not gives_cdi:
        problems.append(_without_cdi(state, by_cdi))
    return _Runtime(name, image, gives_cdi, "" if image else no_image)


def _without_cdi(state: Mapping[str, Any], by_cdi: Sequence[str]) -> str:
    """The sentence for a running runtime that injects no CDI devices, with the consequence for containers."""
    found = "off" if state["cdi"]["enabled"] is False else "nothing about CDI"
    fails = runtime_queries.fails_without_cdi(state["name"], state["version"])
    consequence = "could not be created with" if fails else "would start without"
    return "{} {}: expected CDI on, found {} in the running daemon: a container {} its devices of {}".format(
        state["name"],
        state["version"],
        found,
        consequence,
        ", ".join(by_cdi),
    )


async def _listing(
    configuration: Configuration, node: Node, expected: dict[str, list[str]], timeout: float
) -> tuple[kubelet_queries.Listing | _NoListing | None, Mapping[str, Said]]:
    """Wait up to ``timeout`` seconds until the kubelet's lists are as expected.

    Returns the lists, and what the running plugin says then. Without a kubelet, the first is None. If the kubelet does
    not answer or its checkpoint cannot be read, the first is _NoListing.
    """
    socket = os.path.join(node.kubelet_root, kubelet_queries.POD_RESOURCES_SOCKET)
    directory = configuration.kubelet_device_plugin_dir
    deadline = time.monotonic() + timeout
    while True:
        listing: kubelet_queries.Listing | _NoListing
        try:
            listing = await kubelet_queries.listing(node.kubelet_root, directory)
        except PodResourcesError as error:
            if not os.path.exists(socket):
                return None, await said_by_plugin(directory)
            late = f"expected an answer on {socket}, found none in {timeout:g} s"
            listing = _NoListing(late)
            if error.is_limited:
                listing = _NoListing(str(error), "the kubelet gets too many requests", "rate limited")
        except (OSError, CheckpointError) as error:
            listing = _NoListing(str(error), "the kubelet's checkpoint cannot be read", "running")
        else:
            said = await said_by_plugin(directory)
            registered = _registered(listing, said)
            if all(
                sorted(listing.allocatable.get(name, ())) == sorted(ids) and name in registered
                for name, ids in expected.items()
            ):
                return listing, said
        if time.monotonic() > deadline:
            return listing, said if isinstance(listing, kubelet_queries.Listing) else await said_by_plugin(directory)
        await asyncio.sleep(_LOOK)


def _registered(listing: kubelet_queries.Listing, said: Mapping[str, Said]) -> frozenset[str]:
    return listing.registered({name: each.is_registered for name, each in said.items()})


def _judge(
    wanted: Expected,
    offer: Offer,
    lost: Sequence[Loss],
    listing: kubelet_queries.Listing,
    is_registered: bool,
    scope: Scope,
) -> Row:
    """The row of a resource, before its proof. lost: its losses that fail a verification.

    is_registered: whether the kubelet knows the resource.
    """
    resource, withheld = wanted.resource, wanted.withheld
    found = listing.allocatable.get(resource.name, ())
    row = Row(resource.name, len(wanted.ids), len(found), (), states.EMPTY, "", absent=wanted.absent)
    if not is_registered:
        detail = "expected the resource to be registered with the kubelet, found no such resource"
        return row._replace(state=states.FAILED, detail=detail)
    # A pod may have ended after the holders were read.
    freed = {share for each in resource.devices if each.id in withheld for share in kubelet_ids(resource, each)}
    absent, foreign = sorted(set(wanted.ids) - set(found)), sorted(set(found) - set(wanted.ids) - freed)
    details = []
    if absent or foreign:
        detail = "expected %d healthy devices with the kubelet, found %d" % (len(wanted.ids), len(found))
        for what, ids in (("missing", absent), ("not declared", foreign)):
            if ids:
                detail += " ({}: {})".format(what, " ".join(ids))
        details.append(detail)
    details += missing(offer, [device.id for device in devices_of(resource, absent)], lost)
    if details:
        return row._replace(state=states.FAILED, detail="; ".join(details))
    if withheld:
        # Do not prove the resource now: a proof checks all declared devices, but the plugin offers fewer.
        detail = "; ".join(f"{device}: {why}" for device, why in sorted(withheld.items()))
        return row._replace(state=states.IN_USE, detail=detail)
    if not found:
        return row
    shares = _free_shares(resource, listing, scope)
    if shares:
        return row._replace(state=states.UNPROVEN, shares=shares)
    return row._replace(state=states.IN_USE, detail=_held_by(resource, listing))


def _free_shares(resource: Resource, listing: kubelet_queries.Listing, scope: Scope) -> int:
    """The number of shares that a proof may request."""
    held = listing.held(resource.name)
    free = sum(kubelet_id not in held for kubelet_id in listing.allocatable.get(resource.name, ()))
    wanted = free if scope.devices == "all" else min(free, 1)
    return min(wanted, resource.container_limit or wanted)


def _held_by(resource: Resource, listing: kubelet_queries.Listing) -> str:
    return "by {}".format(", ".join(sorted(set(listing.held(resource.name).values()))))


class _OfKubelet:
    """Proves resources with containers of the kubelet: first other pods' containers, then static pods'."""

    def __init__(self, configuration: Configuration, runtime: _Runtime, node: Node, scope: Scope) -> None:
        self._configuration = configuration
        self._runtime = runtime
        self._node = node
        self._scope = scope
        self._slots = SlotCounter(node.kubelet_kubeconfig, node.max_pods)

    async def prove(
        self, resources: Sequence[Resource], rows: Mapping[str, Row], listing: kubelet_queries.Listing
    ) -> dict[str, Outcome]:
        """Maps each resource to its outcome. Omits a resource that has neither a free share nor a holder to inspect."""
        outcomes: dict[str, Outcome] = {}
        if not resources:
            return outcomes
        async with CriClient(self._node.runtime_socket) as cri:
            try:
                there = await containers.running(cri)
                for resource in resources:
                    holders = [holder for holder in listing.holders if holder.resource == resource.name]
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

    async def _of_proof_pod(
        self, there: containers.Containers, resource: Resource, holders: Sequence[Holder]
    ) -> Outcome:
        for holder in holders:
            if f"{holder.namespace}/{holder.pod}" in self._scope.proof_pods:
                outcome = await there.outcome(resource, holder, SETTLE)
                return outcome or Outcome(unproven="the proof's container ended before the check")
        return Outcome(unproven="the proof's pod no longer holds a device of this resource")

    async def _by_static_pod(self, resource: Resource, cri: CriClient) -> Outcome:
        directory, image = self._node.static_pod_dir, self._runtime.image
        if image is None:
            return Outcome(unproven=self._runtime.no_image)
        if not self._node.makes_static_pods:
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
            now = await kubelet_queries.listing(self._node.kubelet_root, self._configuration.kubelet_device_plugin_dir)
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
        kubelet = proof_by_kubelet.Kubelet(self._node.kubelet_root, directory, image, self._scope.timeout)
        return await proof_by_kubelet.prove(resource, shares, cri, kubelet)


def _together(found: Outcome, proof: Outcome) -> Outcome:
    """The outcome of a proof, combined with the outcome of other pods' containers."""
    seen = tuple(dict.fromkeys([*found.seen, *proof.seen]))
    if proof.unproven and found.mismatches:
        return Outcome(seen, (), "{}; a container of {}".format(proof.unproven, "; of ".join(found.mismatches)))
    return proof._replace(seen=seen)


async def _prove_by_runtime(
    resources: Sequence[Resource], runtime: _Runtime, node: Node, names: CdiNames
) -> dict[str, Outcome]:
    if runtime.image is None or not runtime.gives_cdi:
        return {}
    async with CriClient(node.runtime_socket) as cri:
        proofs = {r.name: proof_by_runtime.prove(r, cri, runtime.image, names) for r in resources if r.uses_cdi}
        return dict(zip(proofs, await asyncio.gather(*proofs.values())))
