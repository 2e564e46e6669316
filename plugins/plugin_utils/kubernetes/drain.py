# SPDX-License-Identifier: Apache-2.0
"""Cordons a node, evicts its pods and uncordons the node, as `kubectl drain` and `kubectl uncordon` do.

By default, a drain fails before the cordon if the node has pods without a controller or with emptyDir data. Pods of
DaemonSets and static pods stay. An annotation marks our cordons. Therefore we never lift another user's cordon, and a
later run lifts the cordon of a killed run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ....plugin.node_device_plugin.cluster.api import Api, Blocked, Conflict, NotFound, Place, again_after_conflict
from ....plugin.node_device_plugin.cluster.pods import bound, is_finished, name_of
from .. import asked
from .waiting import until

#: Annotation of a node that we cordoned: since when, and by which play.
ANNOTATION = "nodedevices.kubernetes/cordoned"
# Seconds between two checks of the pods, and between two attempts to evict a pod that a disruption budget protects.
# Source of the second value: kubectl.
_PAUSE = 1.0
_TRY_AGAIN = 5.0
_MIRROR = "kubernetes.io/config.mirror"

NO_CLUSTER = asked.without_kubeconfig("a drain needs the Kubernetes API")


class NotDrained(Exception):
    """A node is not drained. The message says why in one sentence."""


class Rules(NamedTuple):
    """The drain's options, with the names of kubectl's options. minutes: time for the pods to end."""

    minutes: float = 10
    force: bool = False
    delete_emptydir_data: bool = False


def obstacles(wanted: Mapping[str, Any], has_cluster: bool) -> Iterator[str]:
    """Yield one message for each reason not to start the drain. wanted: option ``drain`` of node_preflight."""
    if not has_cluster:
        yield NO_CLUSTER
    together = wanted.get("together", ())
    if len(together) > 1:
        yield (
            f"{len(together)} nodes would be drained at the same time, because Ansible made the batches before it "
            "read node_devices_drain: set node_devices_drain with -e or in the vars of import_playbook, or set "
            "node_devices_serial to the number of nodes to drain at the same time"
        )


class Drain:
    """The drain of one node. With a client of dry runs, the drain does not wait."""

    def __init__(self, api: Api, node: str) -> None:
        self._api, self._node = api, node

    def cordon(self, by: str) -> tuple[bool, bool]:
        """Cordon the node. by: the annotation's text.

        Returns whether the cordon is ours, and whether anything changed. Raises ApiError.
        """
        node, changed = self._change(by, lambda node: not is_cordoned(node))
        return changed or is_ours(node), changed

    def uncordon(self) -> bool:
        """Lift our cordon, or remove what is left of it. Returns whether anything changed. Raises ApiError."""
        return self._change(None, _is_marked)[1]

    def _change(
        self, by: str | None, is_to_change: Callable[[Mapping[str, Any]], bool]
    ) -> tuple[Mapping[str, Any], bool]:
        """Cordon the node, or uncordon it if ``by`` is None. Return the node object, and whether anything changed."""

        def change() -> tuple[Mapping[str, Any], bool]:
            node = self._api.node(self._node)
            if not is_to_change(node):
                return node, False
            # With resourceVersion, the patch fails if someone changed the node meanwhile.
            version = node["metadata"]["resourceVersion"]
            patch = {
                "metadata": {"annotations": {ANNOTATION: by}, "resourceVersion": version},
                "spec": {"unschedulable": True if by else None},
            }
            return self._api.merge(Place("nodes", self._node), patch), True

        return again_after_conflict(change)

    def pods(self, rules: Rules) -> list[dict[str, Any]]:
        """Return the pods to evict. Raises ApiError, and NotDrained if pods or data would be lost."""
        pods = [pod for pod in bound(self._api, self._node) if _goes(pod)]
        lost = []
        alone = ", ".join(name_of(pod) for pod in pods if _controller(pod) is None)
        if alone and not rules.force:
            lost.append(f"no controller would recreate {alone} (to evict anyway, set node_devices_drain_force: true)")
        with_data = ", ".join(name_of(pod) for pod in pods if _has_data(pod))
        if with_data and not rules.delete_emptydir_data:
            lost.append(
                f"the emptyDir data of {with_data} would be lost (to evict anyway, set "
                "node_devices_drain_delete_emptydir_data: true)"
            )
        if lost:
            raise NotDrained(f"node {self._node} cannot be drained: {'; '.join(lost)}")
        return pods

    def evict(self, pods: Iterable[dict[str, Any]], rules: Rules, meanwhile: Callable[[], None]) -> list[str]:
        """Evict the pods and wait until they no longer exist. Raises ApiError, and NotDrained if pods stay.

        meanwhile: called before each check. In a dry run, returns one message for each pod that cannot be evicted now.
        """
        staying = {pod["metadata"]["uid"]: _Going(pod) for pod in pods}

        def look(is_late: bool) -> list[str] | None:
            for going in staying.values():
                going.ask(self._api)
            if self._api.dry_run:
                return [str(going) for going in staying.values() if not going.asked]
            there = {pod["metadata"]["uid"] for pod in bound(self._api, self._node)}
            for uid in staying.keys() - there:
                del staying[uid]
            if staying and is_late:
                raise NotDrained(
                    f"node {self._node} still has pods after {rules.minutes:g} minutes: "
                    f"{'; '.join(str(going) for going in staying.values())}. Remove the cause, or raise "
                    "node_devices_drain_minutes"
                )
            return None if staying else []

        return until(look, rules.minutes * 60, _PAUSE, meanwhile)


class _Going:
    """A pod whose eviction is in progress."""

    def __init__(self, pod: dict[str, Any]) -> None:
        self._pod = pod
        self.asked = "deletionTimestamp" in pod["metadata"]
        self._why = "the API server could not be reached"
        self._next = 0.0

    def ask(self, api: Api) -> None:
        """Request the eviction, unless the API server already accepted it or it is too early for a retry."""
        if self.asked or time.monotonic() < self._next:
            return
        try:
            api.evict(self._pod)
        except (Blocked, Conflict) as error:
            # Conflict means that the pod just changed, or that a new pod with the same name replaced it.
            self._why, self._next = str(error).strip(), time.monotonic() + _TRY_AGAIN
            return
        except NotFound:
            pass
        self.asked = True

    def __str__(self) -> str:
        if not self.asked:
            return f"{name_of(self._pod)} cannot be evicted: {self._why}"
        seconds = (self._pod.get("spec") or {}).get("terminationGracePeriodSeconds", 30)
        return f"{name_of(self._pod)} is terminating, with a grace period of {seconds} s"


def is_cordoned(node: Mapping[str, Any]) -> bool:
    """Return whether a node is cordoned."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def is_ours(node: Mapping[str, Any]) -> bool:
    """Return whether we cordoned a node that still is."""
    return is_cordoned(node) and _is_marked(node)


def _is_marked(node: Mapping[str, Any]) -> bool:
    return ANNOTATION in (node["metadata"].get("annotations") or {})


def _controller(pod: Mapping[str, Any]) -> str | None:
    owners = [owner for owner in pod["metadata"].get("ownerReferences") or () if owner.get("controller")]
    return owners[0]["kind"] if owners else None


def _goes(pod: Mapping[str, Any]) -> bool:
    """Return whether a drain evicts a pod.

    A drain skips static pods, finished pods and DaemonSets' pods, because a DaemonSet would recreate its pods.
    """
    is_static = _MIRROR in (pod["metadata"].get("annotations") or {})
    return not is_static and _controller(pod) != "DaemonSet" and not is_finished(pod)


def _has_data(pod: Mapping[str, Any]) -> bool:
    return any("emptyDir" in volume for volume in (pod.get("spec") or {}).get("volumes") or ())
