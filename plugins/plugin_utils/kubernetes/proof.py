# SPDX-License-Identifier: Apache-2.0
"""Proves one node's devices with pods that request the devices.

The scheduler places each pod, so a pod gets only free devices. A pod's priority is very low. Therefore the pod waits
for free devices and preempts no other pod. If another pod preempts it, the outcome has no proof and says why.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from ....plugin.node_device_plugin.cluster import manifests
from ....plugin.node_device_plugin.cluster.api import Api, ApiError, LacksRights, Place, Unavailable
from ....plugin.node_device_plugin.cluster.manifests.device_classes import resource_of
from ....plugin.node_device_plugin.verification import proof_record, static_pod
from ....plugin.node_device_plugin.verification.report import Outcome
from . import kubelet_of_a_pod, objects
from .device_classes import CLASSES
from .objects import Change, DeploymentError, own
from .waiting import until

_NAME = "node-device-proof"
_CONTAINER = "proof"
#: The name of a claim in its pod.
_CLAIM = "devices"
_CLAIMS = Place("resourceclaims", group="resource.k8s.io/v1")
_LABELS = {"app.kubernetes.io/name": _NAME, **manifests.MANAGED_BY}
_SELECTOR = f"app.kubernetes.io/name={_NAME}"
#: Annotation of a node that only the API reaches, with the record of its proofs. It is JSON and maps each resource to
#: the hash of everything that affects its proof.
RECORD = "nodedevices.kubernetes/proven"
#: Annotation with the node's name. It exists even before the scheduler places the pod.
_NODE = "nodedevices.kubernetes/proof-of"
#: All proofs in a cluster share this priority class. Without a class, a pod has priority 0 and preempts pods with
#: negative priority. The API server rejects a pod with preemptionPolicy and without a class.
_CLASS = Place("priorityclasses", _NAME, group="scheduling.k8s.io/v1")
_PRIORITY = -1_000_000
#: Number of simultaneous pods, and the timeout in seconds for the next pods after a pod timed out.
_AT_ONCE = 8
_AGAIN = 10.0
# Seconds between two checks, for a pod's end, and from a pod's timeout to its deadline.
_PAUSE = 0.5
# Seconds between two requests to the kubelet to prepare a pod's claim. Its first attempt may come before the API server
# lets this kubelet read the claim, because the Node authorizer learns of the pod's node by a watch of its own.
_PREPARE_AGAIN = 5.0
_GOING = 30.0
_BEYOND = 240
# CPU and memory of a container that inspects itself.
_REQUESTS = {"cpu": "10m", "memory": "32Mi"}
_LIMITS = {"memory": "96Mi"}
# Waiting reasons of a container that has its image and devices but cannot start.
_NOT_STARTED = ("CreateContainerError", "CreateContainerConfigError", "RunContainerError", "CrashLoopBackOff")
# What a pod's status says while only an event has the reason, as for a claim that cannot be prepared.
_NO_REASON = ("", "ContainerCreating")


class Wanted(NamedTuple):
    """The request of a proof's pod. arguments: for its container's program.

    device_class: the DeviceClass of a resource with ``api: dra``; else empty. The pod gets a claim of its own, unless
    the class lets the scheduler make the claim for the pod's limits, as for the pods of users.
    """

    resource: str
    shares: int
    arguments: tuple[str, ...] = ()
    device_class: str = ""


class Kind(NamedTuple):
    """The settings of a node's proof pods.

    namespace: of the pods. owner: the DaemonSet whose deletion also deletes the pods, or None. ends: whether the image
    is the plugin's, whose container inspects itself and exits; a succeeded pod is then ready.
    """

    namespace: str
    image: str
    tolerations: Sequence[Mapping[str, str]]
    pull_secrets: Sequence[str] = ()
    owner: Mapping[str, Any] | None = None
    ends: bool = False


#: A function that inspects ready pods. It takes pods by resource, and returns outcomes by resource.
Look = Callable[[Mapping[str, Mapping[str, Any]]], Mapping[str, Outcome]]


def priority_class() -> dict[str, Any]:
    """Return the manifest of the priority class."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": _NAME, "labels": dict(manifests.MANAGED_BY)},
        "value": _PRIORITY,
        "preemptionPolicy": "Never",
        "globalDefault": False,
        "description": "Proofs of node-devices: they take no other pod's place.",
    }


def manifest(kind: Kind, node: str, wanted: Wanted, timeout: float) -> dict[str, Any]:
    """Return the manifest of a proof's pod. The pod of a claim waits until ``claim`` of the created pod exists."""
    limits = {} if wanted.device_class else {wanted.resource: str(wanted.shares)}
    spec: dict[str, Any] = {
        # Do not use nodeName, because the pod would bypass the scheduler.
        **manifests.on_node(node),
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
                # Each node already has this image, which is the runtime's or the running plugin's.
                "image": kind.image,
                "imagePullPolicy": "Never",
                **({"args": list(wanted.arguments)} if wanted.arguments else {}),
                "resources": {
                    **({"requests": _REQUESTS} if kind.ends else {}),
                    **({"claims": [{"name": _CLAIM}]} if wanted.device_class else {}),
                    "limits": {**(_LIMITS if kind.ends else {}), **limits},
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
    named = {"generateName": static_pod.PREFIX}
    if wanted.device_class:
        # The claim has the pod's name, so the name must be known now.
        named = {"name": static_pod.new_name()}
        spec["resourceClaims"] = [{"name": _CLAIM, "resourceClaimName": named["name"]}]
    metadata: dict[str, Any] = {
        **named,
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


def claim(wanted: Wanted, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of the claim of a created pod. Kubernetes deletes the claim with the pod."""
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]}
    exactly = {"deviceClassName": wanted.device_class, "allocationMode": "ExactCount", "count": wanted.shares}
    return {
        "apiVersion": _CLAIMS.group,
        "kind": "ResourceClaim",
        "metadata": {
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "labels": _LABELS,
            "ownerReferences": [owner],
        },
        "spec": {"devices": {"requests": [{"name": _CLAIM, "exactly": exactly}]}},
    }


class Proofs:
    """The proofs of one node."""

    def __init__(
        self, api: Api, kind: Kind, node: str, timeout: float, renew: Callable[[], None] = lambda: None
    ) -> None:
        """timeout: seconds until pods are ready. renew: renews the play's lock at each check."""
        self._api = api
        self._kind = kind
        self._node = node
        self._timeout = timeout
        self._renew = renew
        self._place = Place("pods", namespace=kind.namespace)

    def prove(self, wanted: Iterable[Wanted], look: Look) -> dict[str, Outcome]:
        """Return outcomes by resource. Raises Unavailable.

        A few pods run at a time, each for one resource. The method deletes all pods, unless the API server becomes
        unreachable.
        """
        outcomes: dict[str, Outcome] = {}
        timeout, left = self._timeout, list(wanted)
        try:
            own(_CLASS, self._api.get(_CLASS))
            objects.apply(self._api, _CLASS, priority_class())
            self._remove_leftovers()
            left = [each._replace(device_class="") if self._is_named(each) else each for each in left]
            while left:
                found, is_late = self._prove_some(left[:_AT_ONCE], look, timeout)
                outcomes.update(found)
                # If a pod timed out, the next pods will probably time out, too.
                timeout = min(self._timeout, _AGAIN) if is_late else self._timeout
                left = left[_AT_ONCE:]
        except Unavailable:
            raise
        except (ApiError, DeploymentError) as error:
            # A missing permission, a quota or a webhook is not a fault of the devices.
            outcomes.update((each.resource, Outcome(unproven=str(error))) for each in left)
        return outcomes

    def _is_named(self, wanted: Wanted) -> bool:
        """Return whether pods get a resource with ``api: dra`` by their limits."""
        if not wanted.device_class:
            return False
        try:
            found = self._api.get(CLASSES._replace(name=wanted.device_class))
        except LacksRights:
            return False
        return found is not None and resource_of(found) == wanted.resource

    def _prove_some(self, wanted: Iterable[Wanted], look: Look, timeout: float) -> tuple[dict[str, Outcome], bool]:
        """Run pods simultaneously. Return their outcomes, and whether the wait timed out."""
        pods: dict[str, dict[str, Any]] = {}
        try:
            for each in wanted:
                made = self._api.create(self._place, manifest(self._kind, self._node, each, self._timeout))
                pods[each.resource] = made
                if each.device_class:
                    # The pod exists first, so that a killed play leaves no claim without an owner.
                    self._api.create(_CLAIMS._replace(namespace=self._kind.namespace), claim(each, made))
            outcomes, is_late = self._await(pods, timeout)
            ready = {resource: pod for resource, pod in pods.items() if resource not in outcomes}
            if ready:
                outcomes.update(until(lambda _is_late: look(ready), timeout, _PAUSE))
            return outcomes, is_late
        finally:
            for pod in pods.values():
                self._delete(pod["metadata"])
            self._await_end(pods.values())

    def _await(self, pods: Mapping[str, Mapping[str, Any]], timeout: float) -> tuple[dict[str, Outcome], bool]:
        """Wait until each pod is ready or has an outcome. Return the outcomes, and whether the wait timed out."""
        outcomes: dict[str, Outcome] = {}
        ready: set[str] = set()
        words = dict.fromkeys(pods, "")
        prepare_at = time.monotonic() + _PREPARE_AGAIN

        def look(is_late: bool) -> tuple[dict[str, Outcome], bool] | None:
            nonlocal prepare_at
            is_due = time.monotonic() >= prepare_at
            if is_due:
                prepare_at = time.monotonic() + _PREPARE_AGAIN
            for resource in pods.keys() - outcomes.keys() - ready:
                pod = self._api.get(self._place._replace(name=pods[resource]["metadata"]["name"]))
                if pod is not None and self._is_ready(pod):
                    ready.add(resource)
                    continue
                if pod is not None and is_due and _awaits_claim(pod):
                    # Without the right to patch pods, the proof takes longer.
                    with contextlib.suppress(ApiError):
                        kubelet_of_a_pod.let_look(self._api, pod, f"prepare-{time.time():.0f}")
                words[resource] = " ".join(_words(pod or {})) or words[resource]
                if pod is not None and is_late and words[resource] in _NO_REASON:
                    said = kubelet_of_a_pod.warning(self._api, self._kind.namespace, pod["metadata"]["name"])
                    words[resource] = said or words[resource]
                outcome = _outcome(pod, words[resource], timeout if is_late else None)
                if outcome is not None:
                    outcomes[resource] = outcome
            return None if pods.keys() - outcomes.keys() - ready else (outcomes, is_late)

        return until(look, timeout, _PAUSE, self._renew)

    def _is_ready(self, pod: Mapping[str, Any]) -> bool:
        """Return whether the pod can be inspected."""
        if pod["metadata"].get("deletionTimestamp"):
            return False
        return (pod.get("status") or {}).get("phase") == ("Succeeded" if self._kind.ends else "Running")

    def _delete(self, metadata: Mapping[str, Any]) -> None:
        # Ignore errors, because the pod ends at its deadline, and a later proof deletes the pod.
        with contextlib.suppress(Unavailable):
            self._api.delete(self._place._replace(name=metadata["name"]), metadata["uid"])

    def _await_end(self, pods: Iterable[Mapping[str, Any]]) -> None:
        """Wait at most _GOING seconds until the pods no longer exist and their devices are free."""
        deadline = time.monotonic() + _GOING
        with contextlib.suppress(Unavailable):
            for pod in pods:
                place = self._place._replace(name=pod["metadata"]["name"])
                while self._api.get(place) is not None and time.monotonic() < deadline:
                    time.sleep(_PAUSE)

    def _remove_leftovers(self) -> None:
        """Delete the node's proof pods that are older than their deadline. Killed plays left these pods."""
        pods = _of_node(self._api, self._place, self._node)
        now = self._api.moment()
        for pod in pods:
            made = datetime.datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
            lifetime = (pod.get("spec") or {}).get("activeDeadlineSeconds", _lifetime(self._timeout))
            if now and (now - made).total_seconds() > lifetime:
                self._delete(pod["metadata"])


def remove(api: Api, namespaces: Iterable[str], node: str) -> Change:
    """Delete the priority class and all proof pods of a node. Raises ApiError.

    The next proof in the cluster creates the class again. Existing pods keep their priority.
    """
    for namespace in namespaces:
        place = Place("pods", namespace=namespace)
        for pod in _of_node(api, place, node):
            api.delete(place._replace(name=pod["metadata"]["name"]), pod["metadata"]["uid"])
    return objects.delete(api, _CLASS)


def _of_node(api: Api, place: Place, node: str) -> list[dict[str, Any]]:
    """Return the proof pods of a node. place: all pods of a namespace. Raises ApiError."""
    pods = api.list(place, labelSelector=_SELECTOR)
    return [pod for pod in pods if (pod["metadata"].get("annotations") or {}).get(_NODE) == node]


def _lifetime(timeout: float) -> int:
    return int(timeout) + _BEYOND


def _outcome(pod: Mapping[str, Any] | None, words: str, waited: float | None) -> Outcome | None:
    """Return the outcome of a pod that is not ready; None if the pod may still become ready.

    words: the cluster's messages about the pod. waited: seconds after the timeout; None before the timeout.
    """
    words = words or "no reason was reported"
    if pod is None:
        return Outcome(unproven=f"another client deleted the proof's pod: {words}")
    status, name = pod.get("status") or {}, pod["metadata"]["name"]
    if pod["metadata"].get("deletionTimestamp"):
        return Outcome(unproven=f"pod {name} was deleted before the proof, for example by preemption: {words}")
    if status.get("phase") == "Failed":
        # UnexpectedAdmissionError means that the kubelet did not admit the devices. Without a reason, the program
        # failed. For other reasons (Preempting, Evicted, OutOfpods, node shutdown), the devices are not the cause.
        is_refused = status.get("reason", "UnexpectedAdmissionError") == "UnexpectedAdmissionError"
        is_wrong = is_refused and not static_pod.is_no_device_free(words)
        said = f"pod {name} failed: {words}"
        return Outcome(mismatches=(said,)) if is_wrong else Outcome(unproven=said)
    if status.get("phase") == "Succeeded":
        return Outcome(unproven=f"pod {name} ended before it could be inspected: {words}")
    if waited is None:
        return None
    waiting = [((each.get("state") or {}).get("waiting") or {}) for each in status.get("containerStatuses") or ()]
    if any(each.get("reason") in _NOT_STARTED for each in waiting):
        return Outcome(mismatches=(f"expected a container, found none after {waited:g} s: {words}",))
    return Outcome(unproven=f"its pod is {status.get('phase', 'Pending')} after {waited:g} s: {words}")


def _awaits_claim(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod is on its node and may wait for the preparation of a claim."""
    spec, phase = pod.get("spec") or {}, (pod.get("status") or {}).get("phase")
    has_claim = spec.get("resourceClaims") or (pod.get("status") or {}).get("extendedResourceClaimStatus")
    return bool(has_claim and spec.get("nodeName")) and phase == "Pending"


def _words(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield the messages of scheduler, kubelet and runtime about a pod that does not run."""
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


def read_record(node: Mapping[str, Any]) -> dict[str, str]:
    """Return the record of proofs in a node object; empty if nothing was proven yet."""
    return proof_record.read_text((node["metadata"].get("annotations") or {}).get(RECORD, "{}"))


def write_record(api: Api, node: str, record: Mapping[str, str]) -> None:
    """Write a record into a node object; an empty record removes the annotation. Raises ApiError."""
    text = json.dumps(dict(record), sort_keys=True) if record else None
    api.merge(Place("nodes", node), {"metadata": {"annotations": {RECORD: text}}})
