"""The order of a verification: runtime, kubelet, then a container for each resource that has something free."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Dict, List, NamedTuple, Optional, Tuple

from .. import node_state
from ..cri import CriClient
from ..cri_errors import CriError
from ..declaration import Configuration, Resource
from ..health import unhealthy_reason
from . import report as states
from .proof import Outcome, Proof, prove
from .record import Record
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
    unproven_only: leave out what ``record`` (a path) says was proven as it is now.
    timeout: seconds for the kubelet's lists to become as declared, and again for the proofs.
    """

    devices: str
    unproven_only: bool
    record: Optional[str]
    timeout: float


async def verify(configuration: Configuration, node: Node, scope: Scope) -> Report:
    """Verify this node against ``configuration``. What is wrong is in the report, never an exception."""
    resources = configuration.resources
    problems: List[str] = []
    runtime, image = await _runtime(node, resources, problems)
    expected = {resource.name: _expected_ids(resource) for resource in resources}
    listing = await _listing(configuration, node, expected, scope.timeout)
    if listing is None:
        kubelet = "none yet"
        rows = [
            Row(r.name, len(expected[r.name]), 0, (), states.PENDING, "no kubelet answers on this node yet")
            for r in resources
        ]
        return Report(runtime, kubelet, rows, problems)

    record = Record(scope.record)
    proofs: Dict[str, Proof] = {}
    rows = []
    for resource in resources:
        row, wanted = _judge(resource, expected[resource.name], listing, scope)
        if row.state == states.FAILED:
            problems.append("%s: %s" % (resource.name, row.detail))
        elif wanted and scope.unproven_only and record.holds(resource, runtime):
            row = row._replace(state=states.PROVEN_BEFORE)
        elif wanted:
            proofs[resource.name] = Proof(resource, wanted)
        rows.append(row)
    outcomes = await _prove(proofs, node, image, scope)
    for position, row in enumerate(rows):
        outcome = outcomes.get(row.resource)
        if outcome is None:
            continue
        failed = bool(outcome.shortcomings)
        rows[position] = row._replace(
            seen=outcome.seen,
            state=states.FAILED if failed else states.PROVEN,
            detail="; ".join(outcome.shortcomings),
        )
        problems.extend("%s: in a container: %s" % (row.resource, text) for text in outcome.shortcomings)
        record.note(proofs[row.resource].resource, runtime, proven=not failed)
    record.save()
    return Report(runtime, "running", rows, problems)


def _expected_ids(resource: Resource) -> List[str]:
    """What the kubelet is to call allocatable: every device that is required, and every other one that is there."""
    return [
        kubelet_id
        for device in resource.devices
        if device.required or unhealthy_reason(device) is None
        for kubelet_id in resource.kubelet_ids(device)
    ]


async def _runtime(node: Node, resources: Tuple[Resource, ...], problems: List[str]) -> Tuple[str, Optional[str]]:
    """The runtime in words, and the image for proofs."""
    try:
        state = await node_state.runtime(node.runtime_socket)
    except CriError as error:
        problems.append(str(error))
        return "unknown", None
    name = "%(name)s %(version)s" % state
    by_cdi = [resource.name for resource in resources if resource.uses_cdi]
    if by_cdi and state["cdi"]["enabled"] is False:
        problems.append(
            "%s: expected CDI on, found it off in the running daemon: a container would start without its devices of %s"
            % (name, ", ".join(by_cdi))
        )
    return name, node.image or state["sandbox_image"]


async def _listing(
    configuration: Configuration, node: Node, expected: Dict[str, List[str]], timeout: float
) -> Optional[node_state.Listing]:
    """What the kubelet lists, as soon as it is what is expected, else what it is in the end; None without a kubelet."""
    socket = os.path.join(node.kubelet_root, node_state.POD_RESOURCES_SOCKET)
    deadline = time.monotonic() + timeout
    listing = None
    while True:
        listing = await node_state.listing(node.kubelet_root, configuration.kubelet_device_plugin_dir)
        if listing is None and not os.path.exists(socket):
            return None
        as_expected = listing is not None and all(
            sorted(listing.allocatable.get(name, ())) == sorted(ids) and name in listing.registered
            for name, ids in expected.items()
        )
        if as_expected or time.monotonic() > deadline:
            return listing
        await asyncio.sleep(_LOOK)


def _judge(resource: Resource, expected: List[str], listing: node_state.Listing, scope: Scope) -> Tuple[Row, int]:
    """The row of a resource before its proof, and how many shares the proof may ask for."""
    found = listing.allocatable.get(resource.name, ())
    row = Row(resource.name, len(expected), len(found), (), states.EMPTY, "")
    if resource.name not in listing.registered:
        return row._replace(
            state=states.FAILED, detail="expected it registered with the kubelet, found no such resource there"
        ), 0
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
    return row, len(free) if scope.devices == "all" else 1


async def _prove(proofs: Dict[str, Proof], node: Node, image: Optional[str], scope: Scope) -> Dict[str, Outcome]:
    """Run all proofs at once. What stands against all of them is said of each."""
    if not proofs:
        return {}
    obstacle = None
    if node.static_pod_dir is None:
        obstacle = "no proof was possible: the kubelet takes no static pods (staticPodPath of its configuration)"
    elif not os.path.isdir(node.static_pod_dir):
        obstacle = "no proof was possible: the kubelet's static pod directory %s is missing" % node.static_pod_dir
    elif image is None:
        obstacle = "no proof was possible: the runtime has no sandbox image yet; name one (verification_image)"
    if obstacle is not None or node.static_pod_dir is None or image is None:
        return {name: Outcome((), (obstacle or "",)) for name in proofs}
    remove_leftovers(node.static_pod_dir)
    async with CriClient(node.runtime_socket) as cri:
        outcomes = await asyncio.gather(
            *(
                prove(proof, cri, node.static_pod_dir, node.kubelet_root, image, node.image is not None, scope.timeout)
                for proof in proofs.values()
            )
        )
    return dict(zip(proofs, outcomes))
