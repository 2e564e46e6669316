# SPDX-License-Identifier: Apache-2.0
"""Ordinary pods that ask for devices of one node, are looked into, and go away again.

A pod comes by the scheduler, which gives it what is free, and has a priority below all others: it waits for what it
lacks, takes nothing from anybody, and goes when somebody else needs its place. Then nothing is proven, and why is said.
"""

from __future__ import annotations

import contextlib
import datetime
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests, pod_slots, quantity
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    Api,
    ApiError,
    Place,
    Unavailable,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification import static_pod
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification.container_view import View

from .objects import Change, DeploymentError, Objects, own

_NAME = "node-device-proof"
_CONTAINER = "proof"
_LABELS = {"app.kubernetes.io/name": _NAME, **manifests.MANAGED_BY}
_SELECTOR = f"app.kubernetes.io/name={_NAME}"
#: Which node a proof is of; it stands there before any scheduler has looked.
_NODE = "nodedevices.kubernetes/proof-of"
#: The class of all proofs of a cluster, whichever inventory made it. Without one a pod has priority 0, for which the
#: scheduler takes away pods of a negative priority; a pod that says preemptionPolicy alone is refused.
_CLASS = Place("priorityclasses", _NAME, group="scheduling.k8s.io/v1")
_PRIORITY = -1_000_000
#: Pods at a time, and seconds that the next ones get once others have waited in vain.
_AT_ONCE = 8
_AGAIN = 10.0
# Seconds between two looks; that a pod may take to go; and that one may live beyond its timeout, if its play died.
_PAUSE = 0.5
_GOING = 30.0
_BEYOND = 240
# Why a kubelet that has a pod's image and devices cannot start its container.
_NOT_STARTED = ("CreateContainerError", "CreateContainerConfigError", "RunContainerError", "CrashLoopBackOff")


class Wanted(NamedTuple):
    """What a proof asks for. arguments: of its container's program."""

    resource: str
    shares: int
    arguments: tuple[str, ...] = ()


class Kind(NamedTuple):
    """How the pods of a node are made.

    namespace: where they are. owner: the object that they go with at the latest, None for none. resources: requests and
    limits beside the devices. ends: whether the program ends when it has looked, so that a pod is ready when it did.
    """

    namespace: str
    image: str
    tolerations: Sequence[Mapping[str, str]]
    pull_secrets: Sequence[str] = ()
    owner: Mapping[str, Any] | None = None
    requests: Mapping[str, str] = {}
    limits: Mapping[str, str] = {}
    ends: bool = False


class Outcome(NamedTuple):
    """What became of a proof.

    view: what the container had, where the controller looks. seen: device ids, where the node does. failed: what is
    wrong; unproven: why there was no proof.
    """

    view: View | None = None
    seen: tuple[str, ...] = ()
    failed: str = ""
    unproven: str = ""


#: What looks into pods that are ready: resource to pod, to resource to outcome.
Look = Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, Outcome]]


def priority_class() -> dict[str, Any]:
    """The class as it is made."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": _NAME, "labels": dict(manifests.MANAGED_BY)},
        "value": _PRIORITY,
        "preemptionPolicy": "Never",
        "globalDefault": False,
        "description": "Proofs of node-devices: below every other pod, and they take no other pod's place.",
    }


def manifest(kind: Kind, node: str, wanted: Wanted, timeout: float) -> dict[str, Any]:
    """The pod."""
    only_there = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    spec: dict[str, Any] = {
        # A pod with a node's name would not be the scheduler's, and would be put beside one that it has just placed.
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [only_there]}}
        },
        "priorityClassName": _NAME,
        "tolerations": [dict(each) for each in kind.tolerations],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "dnsPolicy": "Default",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "activeDeadlineSeconds": _lifetime(timeout),
        "securityContext": {"runAsUser": 0, "runAsGroup": 0, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": _CONTAINER,
                # Every node has it: its runtime's own, or that of the plugin which runs there.
                "image": kind.image,
                "imagePullPolicy": "Never",
                **({"args": list(wanted.arguments)} if wanted.arguments else {}),
                "resources": {
                    **({"requests": dict(kind.requests)} if kind.requests else {}),
                    "limits": {**kind.limits, wanted.resource: str(wanted.shares)},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                    "readOnlyRootFilesystem": True,
                },
            }
        ],
    }
    if kind.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in kind.pull_secrets]
    metadata: dict[str, Any] = {
        "generateName": static_pod.PREFIX,
        "namespace": kind.namespace,
        "labels": _LABELS,
        "annotations": {_NODE: node},
    }
    if kind.owner:
        metadata["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "name": kind.owner["metadata"]["name"],
                "uid": kind.owner["metadata"]["uid"],
            }
        ]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


class Proofs:
    """The proofs of one node."""

    def __init__(
        self, api: Api, kind: Kind, node: str, timeout: float, renew: Callable[[], None] = lambda: None
    ) -> None:
        """timeout: seconds for pods to be ready. renew: keeps the play's lock of the node; called at each look."""
        self._api = api
        self._kind = kind
        self._node = node
        self._timeout = timeout
        self._renew = renew
        self._place = Place("pods", namespace=kind.namespace)

    def prove(self, wanted: Iterable[Wanted], look: Look) -> dict[str, Outcome]:
        """Resource to outcome; a few pods at a time, each for its own resource. Raises Unavailable.

        No pod is left when it returns, unless the API server goes away.
        """
        outcomes: dict[str, Outcome] = {}
        timeout, left = self._timeout, list(wanted)
        try:
            own(_CLASS, self._api.get(_CLASS))
            Objects(self._api).apply(_CLASS, priority_class())
            self._remove_leftovers()
            while left:
                found, is_late = self._prove_some(left[:_AT_ONCE], look, timeout)
                outcomes.update(found)
                # What one waited for in vain, the next ones mostly would, too.
                timeout = min(self._timeout, _AGAIN) if is_late else self._timeout
                left = left[_AT_ONCE:]
        except Unavailable:
            raise
        except (ApiError, DeploymentError) as error:
            # A right that is missing, a quota, a webhook: nothing is wrong with the devices.
            outcomes.update((each.resource, Outcome(unproven=str(error))) for each in left)
        return outcomes

    def _prove_some(self, wanted: Iterable[Wanted], look: Look, timeout: float) -> tuple[dict[str, Outcome], bool]:
        """The outcomes of pods that are there at the same time, and whether one of them never became ready."""
        pods: dict[str, dict[str, Any]] = {}
        try:
            for each in wanted:
                made = self._api.create(self._place, manifest(self._kind, self._node, each, self._timeout))
                pods[each.resource] = made
            outcomes, is_late = self._await(pods, timeout)
            ready = {resource: pod for resource, pod in pods.items() if resource not in outcomes}
            until = time.monotonic() + timeout
            while True:
                try:
                    return {**outcomes, **(look(ready) if ready else {})}, is_late
                except Unavailable:
                    if time.monotonic() >= until:
                        raise
                    time.sleep(_PAUSE)
        finally:
            for pod in pods.values():
                self._delete(pod["metadata"])
            self._await_end(pods.values())

    def _await(self, pods: Mapping[str, Mapping[str, Any]], timeout: float) -> tuple[dict[str, Outcome], bool]:
        """Wait until each pod is ready, or has an outcome; these outcomes, and whether one took too long."""
        outcomes: dict[str, Outcome] = {}
        ready: set[str] = set()
        words = dict.fromkeys(pods, "")
        deadline = time.monotonic() + timeout
        while True:
            self._renew()
            is_late = time.monotonic() >= deadline
            try:
                for resource in pods.keys() - outcomes.keys() - ready:
                    pod = self._api.get(self._place._replace(name=pods[resource]["metadata"]["name"]))
                    if pod is not None and self._is_ready(pod):
                        ready.add(resource)
                        continue
                    words[resource] = " ".join(_words(pod or {})) or words[resource]
                    outcome = _outcome(pod, words[resource], timeout if is_late else None)
                    if outcome is not None:
                        outcomes[resource] = outcome
            except Unavailable:
                # A control plane that is restarted, or fails over, comes back; the pods go on meanwhile.
                if is_late:
                    raise
            if not pods.keys() - outcomes.keys() - ready:
                return outcomes, is_late
            time.sleep(_PAUSE)

    def _is_ready(self, pod: Mapping[str, Any]) -> bool:
        """Whether it can be looked into."""
        if pod["metadata"].get("deletionTimestamp"):
            return False
        return (pod.get("status") or {}).get("phase") == ("Succeeded" if self._kind.ends else "Running")

    def _delete(self, metadata: Mapping[str, Any]) -> None:
        # What was found counts all the same. It ends by itself, and the next proof takes away what is left of it.
        with contextlib.suppress(Unavailable):
            self._api.delete(self._place._replace(name=metadata["name"]), metadata["uid"])

    def _await_end(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Until the pods are gone, and with them what they held."""
        deadline = time.monotonic() + _GOING
        with contextlib.suppress(Unavailable):
            for pod in pods:
                place = self._place._replace(name=pod["metadata"]["name"])
                while self._api.get(place) is not None and time.monotonic() < deadline:
                    time.sleep(_PAUSE)

    def _remove_leftovers(self) -> None:
        """Proofs of plays that died: older than any can be that still waits for its pod."""
        now = datetime.datetime.now(datetime.UTC)
        for pod in self._api.list(self._place, labelSelector=_SELECTOR):
            made = datetime.datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
            is_of_node = (pod["metadata"].get("annotations") or {}).get(_NODE) == self._node
            lifetime = (pod.get("spec") or {}).get("activeDeadlineSeconds", _lifetime(self._timeout))
            if is_of_node and (now - made).total_seconds() > lifetime:
                self._delete(pod["metadata"])


def remove(api: Api, namespaces: Iterable[str], node: str, dry_run: bool = False) -> Change:
    """Take away the class, and what plays that died left of a node. Raises ApiError.

    Whoever proves something next in the cluster makes the class again; a pod keeps the priority that it has.
    """
    for namespace in namespaces:
        place = Place("pods", namespace=namespace)
        for pod in api.list(place, labelSelector=_SELECTOR):
            if (pod["metadata"].get("annotations") or {}).get(_NODE) == node:
                api.delete(place._replace(name=pod["metadata"]["name"]), pod["metadata"]["uid"], dry_run)
    return Objects(api, dry_run).delete(_CLASS)


def _lifetime(timeout: float) -> int:
    return int(timeout) + _BEYOND


def _outcome(pod: Mapping[str, Any] | None, words: str, waited: float | None) -> Outcome | None:
    """What is known of a pod that is not ready; None while it may become so.

    words: what was said of it. waited: for how many seconds, where that was long enough.
    """
    words = words or "nobody says why"
    if pod is None:
        return Outcome(unproven=f"somebody else deleted the proof's pod: {words}")
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    if pod["metadata"].get("deletionTimestamp"):
        return Outcome(unproven=f"pod {name} was taken away for another one: {words}")
    if status.get("phase") == "Failed":
        # A pod of which the kubelet did not admit the devices, or whose program failed. For all else (Preempting,
        # Evicted, OutOfpods, a node that shuts down) its devices are not the reason.
        is_refused = status.get("reason", "UnexpectedAdmissionError") == "UnexpectedAdmissionError"
        is_wrong = is_refused and not static_pod.is_no_device_free(words)
        said = f"pod {name} failed: {words}"
        return Outcome(failed=said) if is_wrong else Outcome(unproven=said)
    if status.get("phase") == "Succeeded":
        return Outcome(unproven=f"pod {name} ended before it could be looked into: {words}")
    if waited is None:
        return None
    waiting = [((each.get("state") or {}).get("waiting") or {}) for each in status.get("containerStatuses") or ()]
    if any(each.get("reason") in _NOT_STARTED for each in waiting):
        return Outcome(failed=f"expected a container, found none after {waited:g} s: {words}")
    return Outcome(unproven=f"its pod is {status.get('phase', 'Pending')} after {waited:g} s: {words}")


def _words(pod: Mapping[str, Any]) -> Iterator[str]:
    """What scheduler, kubelet and runtime say of a pod that does not run."""
    status = pod.get("status") or {}
    if status.get("message"):
        yield str(status["message"])
    for condition in status.get("conditions") or ():
        is_said = (condition.get("type"), condition.get("status")) in (
            ("PodScheduled", "False"),
            ("DisruptionTarget", "True"),
        )
        if is_said and condition.get("message") and condition["message"] != status.get("message"):
            yield str(condition["message"])
    for container in status.get("containerStatuses") or ():
        for state in ("waiting", "terminated"):
            said = (container.get("state") or {}).get(state) or {}
            yield from filter(None, (said.get("reason"), said.get("message")))


class Use(NamedTuple):
    """What pods of a node have asked for of a resource. pods: who, as namespace/name."""

    shares: int
    pods: tuple[str, ...]


def in_use(api: Api, node: str) -> dict[str, Use]:
    """Resource to its use on the node, as the scheduler counts it. Raises ApiError."""
    uses: dict[str, Use] = {}
    for pod in pod_slots.unfinished(api, node):
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for resource, shares in _asked(pod["spec"]).items():
            before = uses.get(resource, Use(0, ()))
            uses[resource] = Use(before.shares + shares, tuple(sorted({*before.pods, name})))
    return uses


def _asked(spec: Mapping[str, Any]) -> dict[str, int]:
    """Extended resources of a pod: of all that run side by side, or of the init container with more.

    A sidecar goes on beside those after it.
    """
    together: dict[str, int] = {}
    for container in spec.get("containers") or ():
        for resource, shares in _limits(container):
            together[resource] = together.get(resource, 0) + shares
    most: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in spec.get("initContainers") or ():
        for resource, shares in _limits(container):
            before = sidecars.get(resource, 0)
            if container.get("restartPolicy") == "Always":
                sidecars[resource] = before + shares
            most[resource] = max(most.get(resource, 0), before + shares)
    for resource, shares in sidecars.items():
        together[resource] = together.get(resource, 0) + shares
    return {name: max(together.get(name, 0), most.get(name, 0)) for name in {**together, **most}}


def _limits(container: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for resource, text in ((container.get("resources") or {}).get("limits") or {}).items():
        number = quantity.number(str(text)) if "/" in resource else None
        if number:
            yield resource, int(number)
