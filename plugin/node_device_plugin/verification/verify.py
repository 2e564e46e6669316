"""The order of a verification: runtime, kubelet, then a container for each resource that has something free."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from typing import Any, Awaitable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from ..cdi import writer
from ..declaration import Configuration, Resource
from ..devices.discovery import discover, with_discovered
from ..devices.health import unhealthy_reason
from ..kubelet import queries as kubelet_queries
from ..runtime import queries as runtime_queries
from ..runtime.client import CriClient
from ..runtime.errors import CriError
from ..support.version import version
from . import proof_by_kubelet, proof_by_runtime
from . import report as states
from .looking import Outcome
from .proof_record import Record, read_file
from .report import Report, Row
from .static_pod import remove_leftovers

#: Seconds between two looks at the kubelet's lists.
_LOOK = 0.2


class Node(NamedTuple):
    """Where things are on this node.

    static_pod_dir: None where the kubelet takes no static pods. image: None takes the runtime's sandbox image.
    """

    runtime_socket: str
    kubelet_root: str
    static_pod_dir: Optional[str]
    image: Optional[str]


class Scope(NamedTuple):
    """How much is proven.

    devices: ``one`` free share of each resource, or ``all`` that are free.
    unproven_only: leave out what the file ``record`` says was proven as it is now.
    timeout: seconds for the kubelet's lists to become as declared, and again for the proofs.
    """

    devices: str
    unproven_only: bool
    record: Optional[str]
    timeout: float


class _Runtime(NamedTuple):
    """The runtime in words, the image that proofs run, and whether it gives CDI devices."""

    name: str
    image: Optional[str]
    gives_cdi: bool


async def verify(configuration: Configuration, node: Node, scope: Scope) -> Report:
    """Verify this node against ``configuration``. What is wrong is in the report, never an exception.

    Raises CheckpointError where the kubelet's checkpoint is of an unknown form.
    """
    # What is discovered is expected as the plugin's own code finds it now.
    offered = functools.partial(writer.offered, configuration.dynamic_cdi_dir)
    found = await asyncio.to_thread(discover, configuration.resources, offered=offered)
    resources = [
        with_discovered(resource, found[resource.name].devices) if resource.name in found else resource
        for resource in configuration.resources
    ]
    problems: List[str] = []
    proven_before = read_file(scope.record)
    record = Record(proven_before, version())
    record.keep_only(resources)
    runtime = await _runtime(node, resources, problems)
    expected = {resource.name: _expected_ids(resource) for resource in resources}
    listing = await _listing(configuration, node, expected, scope.timeout)
    outcomes: Dict[str, Outcome] = {}
    if isinstance(listing, str):
        problems.append("kubelet: %s" % listing)
        # One that hangs may take containers of ours for leftovers as soon as it goes on.
        rows = [_pending(resource, expected, "the kubelet does not answer") for resource in resources]
        kubelet = "not answering"
    elif listing is None:
        rows = [_pending(resource, expected, "no kubelet yet") for resource in resources]
        outcomes = await _prove_by_runtime(resources, runtime, node)
        kubelet = "none"
    else:
        rows, shares = [], {}
        for resource in resources:
            row, wanted = _judge(resource, expected[resource.name], listing, scope)
            if wanted and scope.unproven_only and record.holds(resource, runtime.name):
                row = row._replace(state=states.PROVEN_BEFORE)
            elif wanted:
                shares[resource.name] = wanted
            if row.state == states.FAILED:
                problems.append("%s: %s" % (resource.name, row.detail))
            rows.append(row)
        outcomes = await _prove_by_kubelet(resources, shares, runtime, node, scope)
        for resource in resources:
            if resource.name in outcomes:
                record.note(resource, runtime.name, proven=not outcomes[resource.name].mismatches)
        kubelet = "running"
    for name, outcome in outcomes.items():
        problems.extend("%s: in a container: %s" % (name, mismatch) for mismatch in outcome.mismatches)
    rows = [_with_outcome(row, outcomes) for row in rows]
    return Report(runtime.name, kubelet, rows, problems, record.proven, proven_before)


def _pending(resource: Resource, expected: Mapping[str, List[str]], detail: str) -> Row:
    return Row(resource.name, len(expected[resource.name]), 0, (), states.PENDING, detail)


def _with_outcome(row: Row, outcomes: Mapping[str, Outcome]) -> Row:
    outcome = outcomes.get(row.resource)
    if outcome is None:
        return row
    if outcome.mismatches:
        return row._replace(state=states.FAILED, detail="; ".join(outcome.mismatches))
    # Without a kubelet a container proves the runtime's part, and the rest stays pending.
    return row._replace(seen=outcome.seen, state=row.state if row.state == states.PENDING else states.PROVEN)


def _expected_ids(resource: Resource) -> List[str]:
    """What the kubelet is to call allocatable: every device that is required, and every other one that is there."""
    return [
        kubelet_id
        for device in resource.devices
        if device.required or unhealthy_reason(device) is None
        for kubelet_id in resource.kubelet_ids(device)
    ]


async def _runtime(node: Node, resources: Sequence[Resource], problems: List[str]) -> _Runtime:
    try:
        state = await runtime_queries.runtime(node.runtime_socket)
    except CriError as error:
        problems.append(str(error))
        return _Runtime("unknown", None, False)
    name = "%(name)s %(version)s" % state
    by_cdi = [resource.name for resource in resources if resource.uses_cdi]
    gives_cdi = bool(state["cdi"]["enabled"])
    if by_cdi and not gives_cdi:
        problems.append(_without_cdi(state, by_cdi))
    return _Runtime(name, node.image or state["sandbox_image"], gives_cdi)


def _without_cdi(state: Mapping[str, Any], by_cdi: Sequence[str]) -> str:
    """What becomes of containers where the running daemon gives no CDI devices."""
    found = "off" if state["cdi"]["enabled"] is False else "no word of it"
    fails = runtime_queries.fails_without_cdi(state["name"], state["version"])
    consequence = "could not be created with" if fails else "would start without"
    return "%s %s: expected CDI on, found %s in the running daemon: a container %s its devices of %s" % (
        state["name"],
        state["version"],
        found,
        consequence,
        ", ".join(by_cdi),
    )


async def _listing(
    configuration: Configuration, node: Node, expected: Dict[str, List[str]], timeout: float
) -> Union[kubelet_queries.Listing, str, None]:
    """What the kubelet lists, as soon as it is what is expected, else what it is in the end; None without a kubelet.

    A sentence where there is one that does not answer.
    """
    socket = os.path.join(node.kubelet_root, kubelet_queries.POD_RESOURCES_SOCKET)
    deadline = time.monotonic() + timeout
    while True:
        listing = await kubelet_queries.listing(node.kubelet_root, configuration.kubelet_device_plugin_dir)
        if listing is None and not os.path.exists(socket):
            return None
        as_expected = listing is not None and all(
            sorted(listing.allocatable.get(name, ())) == sorted(ids) and name in listing.registered
            for name, ids in expected.items()
        )
        if as_expected:
            return listing
        if time.monotonic() > deadline:
            return listing or "expected an answer on %s, found none in %g s" % (socket, timeout)
        await asyncio.sleep(_LOOK)


def _judge(resource: Resource, expected: List[str], listing: kubelet_queries.Listing, scope: Scope) -> Tuple[Row, int]:
    """The row of a resource before its proof, and how many shares the proof may ask for."""
    found = listing.allocatable.get(resource.name, ())
    row = Row(resource.name, len(expected), len(found), (), states.EMPTY, "")
    if resource.name not in listing.registered:
        detail = "expected it registered with the kubelet, found no such resource there"
        return row._replace(state=states.FAILED, detail=detail), 0
    missing, foreign = sorted(set(expected) - set(found)), sorted(set(found) - set(expected))
    if missing or foreign:
        detail = "expected %d healthy with the kubelet, found %d" % (len(expected), len(found))
        for what, ids in (("missing", missing), ("not declared", foreign)):
            if ids:
                detail += " (%s: %s)" % (what, " ".join(ids))
        reasons = [reason for reason in map(unhealthy_reason, resource.devices) if reason]
        return row._replace(state=states.FAILED, detail="; ".join([detail, *reasons])), 0
    if not found:
        return row, 0
    held = listing.held(resource.name)
    free = [kubelet_id for kubelet_id in found if kubelet_id not in held]
    if not free:
        return row._replace(state=states.IN_USE, detail="by %s" % ", ".join(sorted(set(held.values())))), 0
    wanted = len(free) if scope.devices == "all" else 1
    return row, min(wanted, resource.container_limit or wanted)


async def _prove_by_kubelet(
    resources: Sequence[Resource], shares: Mapping[str, int], runtime: _Runtime, node: Node, scope: Scope
) -> Dict[str, Outcome]:
    """Run all proofs at once. What stands against all of them is said of each."""
    if not shares:
        return {}
    obstacle = ""
    if node.static_pod_dir is None:
        obstacle = "the kubelet takes no static pods (staticPodPath of its configuration)"
    elif not os.path.isdir(node.static_pod_dir):
        obstacle = "the kubelet's static pod directory %s is missing" % node.static_pod_dir
    elif runtime.image is None:
        obstacle = "the runtime has no sandbox image yet (verification_image names another)"
    if obstacle or node.static_pod_dir is None or runtime.image is None:
        return {name: Outcome((), ("no proof was possible: " + obstacle,)) for name in shares}
    remove_leftovers(node.static_pod_dir)
    kubelet = proof_by_kubelet.Kubelet(
        node.kubelet_root, node.static_pod_dir, runtime.image, node.image is not None, scope.timeout
    )
    async with CriClient(node.runtime_socket) as cri:
        return await _all_at_once(
            {
                resource.name: proof_by_kubelet.prove(resource, shares[resource.name], cri, kubelet)
                for resource in resources
                if resource.name in shares
            }
        )


async def _prove_by_runtime(resources: Sequence[Resource], runtime: _Runtime, node: Node) -> Dict[str, Outcome]:
    if runtime.image is None or not runtime.gives_cdi:
        return {}
    async with CriClient(node.runtime_socket) as cri:
        return await _all_at_once(
            {r.name: proof_by_runtime.prove(r, cri, runtime.image) for r in resources if r.uses_cdi}
        )


async def _all_at_once(proofs: Mapping[str, Awaitable[Outcome]]) -> Dict[str, Outcome]:
    return dict(zip(proofs, await asyncio.gather(*proofs.values())))
