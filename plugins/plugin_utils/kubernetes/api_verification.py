# SPDX-License-Identifier: Apache-2.0
"""Verifies a node that only the Kubernetes API reaches: its node object, then a pod for each resource."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....plugin.node_device_plugin.cluster import claims, pods, quantity
from ....plugin.node_device_plugin.cluster.api import Api, Place
from ....plugin.node_device_plugin.cluster.extended_resources import capacities_of, info_of
from ....plugin.node_device_plugin.declaration import Resource
from ....plugin.node_device_plugin.declaration.dra_api import MAX_CLAIMED, NO_CLAIM
from ....plugin.node_device_plugin.declaration.model import DRA
from ....plugin.node_device_plugin.declaration.names import class_name
from ....plugin.node_device_plugin.verification import container_view, evidence, judging
from ....plugin.node_device_plugin.verification.proof_record import Record
from ....plugin.node_device_plugin.verification.report import EMPTY, FAILED, IN_USE, UNPROVEN, Outcome, Row
from . import proof, rollout
from .daemonset import DaemonSet
from .objects import DeploymentError
from .profile import runtime_of
from .waiting import until

# Seconds between two reads of a node object.
_PAUSE = 1.0


def verify(
    cluster: DaemonSet,
    node: str,
    resources: Sequence[Resource],
    *,
    driver: str,
    timeout: float,
    unproven_only: bool,
    all_devices: bool,
) -> tuple[dict[str, Any], bool]:
    """Return a report in the form of `node-device-plugin verify`, and whether the record of proofs changed.

    driver: the name of the DRA driver. timeout: seconds until the node object shows the devices, and again until pods
    are ready. unproven_only: whether to skip resources with a recorded proof. all_devices: whether a proof requests all
    free devices instead of one. Raises ApiError, DeploymentError.
    """
    shown, held = _once_followed(cluster, node, resources, driver, timeout)
    runtime = runtime_of(shown)
    before = proof.read_record(shown)
    record = Record(before, cluster.deployment.image)
    record.keep_only(resources, runtime)
    by_claims, bound = {each.name for each in resources if each.api == DRA}, pods.bound(cluster.api, node)
    # A pod that requests such a resource may have none.
    uses = {name: use for name, use in pods.in_use(bound).items() if name not in by_claims}
    uses.update(claims.in_use(cluster.api, driver, node, resources))
    known = record if unproven_only else None
    rows = []
    for resource in resources:
        use = uses.get(resource.name, pods.Use(0, ()))
        row = _judged(resource, shown, use, all_devices, held.get(resource.name, 0))
        rows.append(judging.before_proof(row, resource, known, runtime) if row.shares else row)
    shares = {row.resource: row.shares for row in rows if row.shares}
    outcomes = _outcomes(cluster, node, resources, shares, timeout)
    judging.note(record, resources, runtime, outcomes)
    if record.proven != before:
        proof.write_record(cluster.api, node, record.proven)
    rows = [judging.with_outcome(row, outcomes) for row in rows]
    report = {
        "runtime": runtime,
        "kubelet": info_of(shown, "kubeletVersion"),
        "resources": [row._asdict() for row in rows],
        "problems": [f"{row.resource}: {row.detail}" for row in rows if row.state == FAILED],
        # While the node has another API's devices under this name, its pods may have them.
        "warnings": list(_without_claim(bound, {name for name in by_claims if not held.get(name)})),
    }
    return report, record.proven != before


def _without_claim(bound: Iterable[Mapping[str, Any]], resources: Collection[str]) -> Iterator[str]:
    """Yield a sentence for each container of a pod that runs without a device of these resources."""
    for pod, container, resource, number in pods.without_claim(bound, resources):
        text = f"{resource}: {pod} runs without a device: its container {container} requests {number}, "
        yield text + NO_CLAIM


def _outcomes(
    cluster: DaemonSet, node: str, resources: Sequence[Resource], shares: Mapping[str, int], timeout: float
) -> dict[str, Outcome]:
    """Prove resources with temporary pods. Return outcomes by resource name.

    shares: the number of shares to request, by resource name.
    """
    if not shares:
        return {}
    owner = cluster.api.get(cluster.place)
    if owner is None:
        raise DeploymentError(f"the cluster has no {cluster.place}: run site.yml")
    deployment = cluster.deployment
    pulled = deployment.image, deployment.tolerations, deployment.image_pull_secrets
    kind = proof.Kind(deployment.namespace, *pulled, owner, ends=True)
    to_prove = {resource.name: resource for resource in resources if resource.name in shares}
    wanted = []
    for name, resource in to_prove.items():
        paths = {each.path for device in resource.devices for each in device.nodes}
        device_class = class_name(name) if resource.api == DRA else ""
        wanted.append(proof.Wanted(name, shares[name], ("seen", *sorted(paths)), device_class))

    def look(ready: Mapping[str, Mapping[str, Any]]) -> dict[str, Outcome]:
        return {name: _printed(cluster.api, pod, to_prove[name], shares[name]) for name, pod in ready.items()}

    return proof.Proofs(cluster.api, kind, node, timeout).prove(wanted, look)


def _printed(api: Api, pod: Mapping[str, Any], resource: Resource, shares: int) -> Outcome:
    """Return the outcome of a proof whose pod's program has printed a report about its container."""
    log = api.text(Place("pods", pod["metadata"]["name"], pod["metadata"]["namespace"], part="log"))
    # Read only the last JSON line, because the log may also have a usage text or a runtime's warning.
    lines = [line for line in log.splitlines() if line.startswith("{")]
    try:
        view = container_view.read_own(json.loads(lines[-1]))
    except (IndexError, RecursionError, ValueError, KeyError, TypeError):
        said = " ".join(log.split())[:200] or "nothing"
        return Outcome(mismatches=(f"the proof's pod printed no report: {said}",))
    return _compared(resource, shares, view)


def _once_followed(
    cluster: DaemonSet, node: str, resources: Sequence[Resource], driver: str, timeout: float
) -> tuple[dict[str, Any], dict[str, int]]:
    """Wait at most ``timeout`` seconds until the node object shows the declared resources. Return the node object.

    It also shows what the node's ResourceSlices offer. Also return, by resource name, the number of devices that the
    plugin withholds because containers hold them by other names.
    """

    def look(is_late: bool) -> tuple[dict[str, Any], dict[str, int]] | None:
        shown, held = cluster.api.node(node), {}
        if any(each.api == DRA for each in resources):
            shown = claims.with_published(shown, resources, claims.published(cluster.api, driver, node))
        if any(_shortfall(each, shown) for each in resources):
            held = rollout.held_by_other_names(cluster, node)
        is_as_declared = all(_shortfall(each, shown, held.get(each.name, 0)) is None for each in resources)
        return (shown, held) if is_late or is_as_declared else None

    return until(look, timeout, _PAUSE)


def _shares(resource: Resource) -> tuple[int, int]:
    """Return the minimum and maximum number of healthy shares. The minimum excludes optional devices."""
    required = sum(resource.replicas for device in resource.devices if device.required)
    return required, resource.replicas * len(resource.devices)


def _healthy(resource: Resource, shown: Mapping[str, Any]) -> int | None:
    """Return the resource's allocatable quantity in the node object; None if the node object does not list it."""
    return quantity.whole(capacities_of(shown, "allocatable").get(resource.name))


def _shortfall(resource: Resource, shown: Mapping[str, Any], held: int = 0) -> str | None:
    """Return why the node object does not match the declaration; None if it matches.

    held: number of devices that containers hold under other names.
    """
    found, where = _healthy(resource, shown), "the node object's allocatable"
    if resource.api == DRA:
        where = "the node's ResourceSlices"
    if found is None and resource.api == DRA:
        return "the node has no ResourceSlice of it: the log of the plugin's pod has the reason"
    if found is None:
        return "the node object does not list it, because no plugin registered it with the kubelet"
    least, most = _shares(resource)
    if found < (resource.min_devices - held) * resource.replicas:
        needed = resource.min_devices * resource.replicas
        return f"expected at least {needed} healthy devices (min_devices) in {where}, found {found}"
    if resource.discover.methods or least - held * resource.replicas <= found <= most:
        return None
    expected = str(least) if least == most else f"{least} to {most}"
    return f"expected {expected} healthy devices in {where}, found {found}"


def _judged(resource: Resource, shown: Mapping[str, Any], use: pods.Use, all_devices: bool, held: int) -> Row:
    """Return the resource's row before its proof. held: see ``_shortfall``."""
    shortfall, healthy = _shortfall(resource, shown, held), _healthy(resource, shown) or 0
    capacity = healthy if resource.discover.methods else _shares(resource)[1]
    row = Row(resource.name, capacity, healthy, (), FAILED, shortfall or "")
    if shortfall:
        return row
    if held:
        why = f"{held} held by another name; the log of the plugin's pod names the pods"
        return row._replace(state=IN_USE, detail=why)
    if not healthy:
        return row._replace(state=EMPTY)
    if resource.discover.methods:
        why = "its devices are discovered on the node, and the API does not list them"
        return row._replace(state=UNPROVEN, detail=why)
    free = healthy - use.shares
    if free <= 0 and evidence.can_show(resource, resource.devices):
        return row._replace(state=IN_USE, detail="by " + ", ".join(use.pods))
    most = MAX_CLAIMED if resource.api == DRA else resource.container_limit or free
    everything = all_devices and free == capacity <= most
    return row._replace(state=UNPROVEN, shares=free if everything else 1)


def _compared(resource: Resource, shares: int, view: container_view.View) -> Outcome:
    """Return the outcome of a proof: whether the container's devices match an allocation of the declared devices.

    The API does not show which device the kubelet allocated. Therefore the container of one share may match any
    declared device.
    """
    sets = [[device] for device in resource.devices] if shares == 1 else [list(resource.devices)]
    expected = container_view.expected_in_container
    found = [(container_view.mismatches(view, expected(resource, devices)), devices) for devices in sets]
    fitting = [devices for mismatches, devices in found if not mismatches]
    if not fitting:
        mismatches, _devices = min(found, key=lambda each: len(each[0]))
        return Outcome(mismatches=("in a container: " + "; ".join(mismatches),))
    # Every container may have all that some devices give.
    shown = [tuple(ids) for devices in fitting if (ids := evidence.shown(view, resource, devices))]
    if not shown:
        return Outcome(unproven=evidence.why_none(resource, fitting[0]))
    if len(shown) > 1:
        alike = ", ".join(device for ids in shown for device in ids)
        return Outcome(note=f"one of {alike}, which look alike in a container")
    return Outcome(shown[0])
