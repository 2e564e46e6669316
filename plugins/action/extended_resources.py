# SPDX-License-Identifier: Apache-2.0
"""Patches static extended resources in a node's status. See plugins/modules/extended_resources.py."""

from __future__ import annotations

import contextlib
import shlex
import time

from ...plugin.node_device_plugin.cluster import extended_resources as resources
from ...plugin.node_device_plugin.cluster.api import Api, Place, Unavailable, again_after_conflict
from ...plugin.node_device_plugin.declaration.model import DRA
from ...plugin.node_device_plugin.kubelet import checkpoint
from ..plugin_utils import combinations, framed
from ..plugin_utils.node_action import NodeAction

#: Bytes of the checkpoint that are read, and the seconds that this may take.
_LARGEST, _SECONDS = 32 << 20, 20
# Seconds between two reads of a node object.
_PAUSE = 0.5


class ActionModule(NodeAction):
    """Contacts the API from the controller. If a connection reaches the node, also reads one file on the node."""

    of_the_host = ("kubeconfig", "node_name")

    def act(self, given):
        host, state, declared = self.host, given.get("state", "present"), given["declaration"]
        capacities = declared["capacities"] if state != "absent" else {}
        nothing = {"changed": False, "resources": [], "lingering": []}
        if not given.get("kubeconfig"):
            if capacities:
                raise resources.CapacityConflict(combinations.without_cluster(capacities))
            return nothing
        cluster = Api.of(given["kubeconfig"], self._task.check_mode)
        name = self.preflight.node_name(given)
        if state == "absent" and cluster.get(Place("nodes", name)) is None:
            gone = (
                f"{host}: the cluster has no node {name}, so nothing is removed there: if the node has another name, "
                "set node_devices_node_name and run again"
            )
            return {**nothing, "warnings": [gone]}
        if self.preflight.api_only:
            registered = resources.registered_by(cluster.node(name))
        else:
            registered = self._registered(declared["kubelet_device_plugin_dir"])
        served, by_claims = set(), set()
        for resource in declared["resources"] if state != "absent" else ():
            (by_claims if resource.get("api") == DRA else served).add(resource["name"])
        wanted = resources.Wanted(capacities, frozenset(served), registered, frozenset(by_claims))
        if state == "reported":
            rows = resources.rows(cluster.node(name), wanted)
            wrong = [row for row in rows if row["resource"] in capacities and row["state"] != resources.AS_DECLARED]
            problems = [f"{host}: {row['resource']}: {row['state']}" for row in wrong]
            return {**nothing, "resources": rows, "problems": problems}
        outcome = self._converge(cluster, name, wanted, int(given.get("timeout", 60)))
        if outcome["lingering"]:
            names = ", ".join(outcome["lingering"])
            outcome["warnings"] = [
                f"{host}: the kubelet still lists {names}, because it forgets a resource only 5 minutes after its "
                "device plugin ended. The next run removes the rest from the node object"
            ]
        return outcome

    def _registered(self, directory):
        """Return the resources of all device plugins from the kubelet's checkpoint. Raises CapacityConflict."""
        path = f"{directory}/{checkpoint.FILE_NAME}"
        quoted = shlex.quote(path)
        # Pods that mount the directory can put a pipe, a link or an endless file there.
        read = f"test -f {quoted} && test ! -L {quoted} && timeout {_SECONDS} head -c {_LARGEST} {quoted}"
        try:
            said = framed.run(self, f"test ! -e {quoted} || {{ {read}; }}")
        except framed.NoAnswer as error:
            raise resources.CapacityConflict(f"{path} cannot be read: {error}") from error
        if said.code != 0:
            why = said.errors.strip() or "it is not a regular file"
            raise resources.CapacityConflict(f"{path} cannot be read: {why}")
        try:
            return frozenset(checkpoint.registered_in(said.output.strip().encode(), directory))
        except checkpoint.CheckpointError as error:
            raise resources.CapacityConflict(str(error)) from error

    def _converge(self, cluster, name, wanted, timeout):
        api_only = self.preflight.api_only

        def change():
            before = node = cluster.node(name)
            plan = resources.plan(before, wanted)
            if plan.operations:
                node = cluster.patch_node_status(name, plan.operations)
                _check(node, plan)
            return plan, before, node

        plan, before, node = again_after_conflict(change)
        lingering = plan.lingering
        if not cluster.dry_run:
            node = _wait_for_kubelet(cluster, name, before if api_only else None, node, plan, timeout)
            wrong = resources.differing(node, plan, "allocatable")
            still = resources.kept_by_the_kubelet(before, node, plan) if api_only else []
            if wrong and not still:
                raise resources.CapacityConflict(
                    f"the kubelet has not made the patched capacity of {', '.join(wrong)} allocatable within "
                    f"{timeout} s: {resources.readiness(node)}"
                )
            if still:
                cluster.patch_node_status(name, resources.remember_served(node, still))
                lingering = sorted({*lingering, *still})
        return {
            "changed": bool(plan.operations),
            "diff": {"before": plan.before, "after": plan.after},
            "resources": resources.rows(node, wanted),
            "lingering": list(lingering),
        }


def _check(node, plan):
    """Raise CapacityConflict if the API server did not apply the patch, for example because a webhook changed it."""
    wrong = resources.differing(node, plan, "capacity")
    if wrong:
        raise resources.CapacityConflict(
            f"the API server accepted the patch, but does not show the requested capacity of {', '.join(wrong)}: "
            "check its admission webhooks"
        )
    if resources.annotation_of(node) != plan.memory:
        raise resources.CapacityConflict(
            f"the API server accepted the patch, but not the annotation {resources.ANNOTATION}: check its admission "
            "webhooks"
        )


def _wait_for_kubelet(cluster, name, before, node, plan, timeout):
    """Wait until the kubelet makes the capacities allocatable at its next sync (10 s). Return the node object.

    before: if only the API reaches the node, the node object before the patch; else None. With this object, the wait
    also ends if the kubelet restores the capacities of removed resources.
    """
    deadline = time.monotonic() + timeout
    while resources.differing(node, plan, "allocatable") and time.monotonic() < deadline:
        kept = resources.kept_by_the_kubelet(before, node, plan) if before else []
        if kept and set(kept) <= set(resources.differing(node, plan, "capacity")):
            break
        time.sleep(_PAUSE)
        # Retry, because an API server answers again after a restart.
        with contextlib.suppress(Unavailable):
            node = cluster.node(name)
    return node
