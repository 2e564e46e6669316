# SPDX-License-Identifier: Apache-2.0
"""A pod that asks for devices of one node, says what it has of them, and goes away again.

It comes by the scheduler, which gives it what is free, as any pod; its program ends as soon as it has looked.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests, quantity
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Place, Unavailable
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification import container_view
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification.container_view import View

from .daemonset import DaemonSet

_NAME = "node-device-proof"
_CONTAINER = "proof"
_LABELS = {"app.kubernetes.io/name": _NAME, **manifests.MANAGED_BY}
#: Which node a proof is of; it stands there before any scheduler has looked.
_NODE = "nodedevices.kubernetes/proof-of"
# What its program needs.
_REQUESTS = {"cpu": "10m", "memory": "32Mi"}
_LIMITS = {"memory": "96Mi"}
# Seconds between two looks; and that a pod of a play that died may go on.
_PAUSE = 0.5
_LIFETIME = 300


class Wanted(NamedTuple):
    """What a proof asks for. paths: that its program looks at."""

    resource: str
    shares: int
    paths: tuple[str, ...]


class Outcome(NamedTuple):
    """view: what the container had; None where it never ran, and ``reason`` says why."""

    view: View | None
    reason: str


def manifest(cluster: DaemonSet, node: str, owner: Mapping[str, Any], wanted: Wanted) -> dict[str, Any]:
    """The pod. owner: the DaemonSet's object, with which it goes at the latest."""
    deployment = cluster.deployment
    only_there = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    spec = {
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only_there]}}
        },
        "tolerations": [dict(each) for each in deployment.tolerations],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "dnsPolicy": "Default",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": _LIFETIME,
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": _CONTAINER,
                # Every node that runs the plugin has it.
                "image": deployment.image,
                "imagePullPolicy": deployment.image_pull_policy,
                "args": ["seen", *wanted.paths],
                "resources": {"requests": _REQUESTS, "limits": {**_LIMITS, wanted.resource: str(wanted.shares)}},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
    }
    if deployment.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in deployment.image_pull_secrets]
    metadata = {
        "generateName": f"{_NAME}-",
        "namespace": deployment.namespace,
        "labels": _LABELS,
        "annotations": {_NODE: node},
        "ownerReferences": [
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
            }
        ],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def prove(
    cluster: DaemonSet, node: str, owner: Mapping[str, Any], wanted: Iterable[Wanted], timeout: float
) -> dict[str, Outcome]:
    """Resource to what a container of it had: all pods at once, each for its own resource. Raises ApiError.

    timeout: seconds for all of them. No pod is left when it returns, unless the API server goes away.
    """
    _remove_leftovers(cluster, node)
    place = Place("pods", namespace=cluster.deployment.namespace)
    pods: dict[str, dict[str, Any]] = {}
    try:
        for each in wanted:
            made = cluster.api.create(place, manifest(cluster, node, owner, each))
            pods[each.resource] = made["metadata"]
        outcomes: dict[str, Outcome] = {}
        deadline = time.monotonic() + timeout
        while True:
            is_late = time.monotonic() >= deadline
            try:
                for resource in pods.keys() - outcomes.keys():
                    pod = cluster.api.get(place._replace(name=pods[resource]["name"])) or {}
                    outcome = _outcome(cluster, pod, is_late, timeout)
                    if outcome is not None:
                        outcomes[resource] = outcome
            except Unavailable:
                # A control plane that is restarted, or fails over, comes back; the pods go on meanwhile.
                if is_late:
                    raise
            if not pods.keys() - outcomes.keys():
                return outcomes
            time.sleep(_PAUSE)
    finally:
        for pod in pods.values():
            # What was found counts all the same. It ends by itself, and the next proof takes away what is left of it.
            with contextlib.suppress(Unavailable):
                cluster.api.delete(place._replace(name=pod["name"]), pod["uid"])


def _outcome(cluster: DaemonSet, pod: Mapping[str, Any], is_late: bool, timeout: float) -> Outcome | None:
    """None while it is not known."""
    if not pod:
        return Outcome(None, "the proof's pod was deleted by somebody else")
    status = pod.get("status") or {}
    name = pod["metadata"]["name"]
    if status.get("phase") == "Succeeded":
        place = Place("pods", name, cluster.deployment.namespace, part="log")
        return _read(cluster.api.text(place))
    words = " ".join(_words(status)) or "nobody says why"
    if status.get("phase") == "Failed":
        return Outcome(None, f"pod {name} failed: {words}")
    return Outcome(None, f"expected a container, found none after {timeout:g} s: {words}") if is_late else None


def _read(log: str) -> Outcome:
    # An older plugin's usage, or a runtime's warning, may stand there too.
    lines = [line for line in log.splitlines() if line.startswith("{")]
    try:
        return Outcome(container_view.read_own(json.loads(lines[-1])), "")
    except (IndexError, RecursionError, ValueError, KeyError, TypeError):
        return Outcome(None, f"the proof's pod did not say what it has: {' '.join(log.split())[:200] or 'nothing'}")


def _words(status: Mapping[str, Any]) -> Iterator[str]:
    """What scheduler, kubelet and runtime say of a pod that does not run."""
    if status.get("message"):
        yield str(status["message"])
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield str(condition.get("message", ""))
    for container in status.get("containerStatuses") or ():
        for state in ("waiting", "terminated"):
            said = (container.get("state") or {}).get(state) or {}
            yield from filter(None, (said.get("reason"), said.get("message")))


def _remove_leftovers(cluster: DaemonSet, node: str) -> None:
    """Proofs of plays that died: older than any can be that still waits for its pod."""
    place = Place("pods", namespace=cluster.deployment.namespace)
    now = datetime.datetime.now(datetime.UTC)
    for pod in cluster.api.list(place, labelSelector=f"app.kubernetes.io/name={_NAME}"):
        made = datetime.datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
        is_of_node = (pod["metadata"].get("annotations") or {}).get(_NODE) == node
        if is_of_node and (now - made).total_seconds() > _LIFETIME:
            cluster.api.delete(place._replace(name=pod["metadata"]["name"]), pod["metadata"]["uid"])


class Use(NamedTuple):
    """What pods of a node have asked for of a resource. pods: who, as namespace/name."""

    shares: int
    pods: tuple[str, ...]


def in_use(cluster: DaemonSet, node: str) -> dict[str, Use]:
    """Resource to its use on the node, as the scheduler counts it. Raises ApiError."""
    uses: dict[str, Use] = {}
    for pod in cluster.api.list(Place("pods"), fieldSelector=f"spec.nodeName={node}"):
        if (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for resource, shares in _asked(pod["spec"]).items():
            before = uses.get(resource, Use(0, ()))
            uses[resource] = Use(before.shares + shares, tuple(sorted({*before.pods, name})))
    return uses


def _asked(spec: Mapping[str, Any]) -> dict[str, int]:
    """Extended resources of a pod: of all containers that run side by side, or of the init container with more."""
    together: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for resource, shares in _limits(container):
            together[resource] = together.get(resource, 0) + shares
    for container in spec.get("initContainers") or ():
        for resource, shares in _limits(container):
            together[resource] = max(together.get(resource, 0), shares)
    return together


def _limits(container: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for resource, text in ((container.get("resources") or {}).get("limits") or {}).items():
        number = quantity.number(str(text)) if "/" in resource else None
        if number:
            yield resource, int(number)
