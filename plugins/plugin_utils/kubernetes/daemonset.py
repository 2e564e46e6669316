# SPDX-License-Identifier: Apache-2.0
"""Applies, changes and deletes the plugin's DaemonSet and each node's label, configuration and proof record.

A node's configuration is a key of the ConfigMap, unless it is equal to a profile's configuration, which is the default
of all nodes. The settings that all pods share are computed from all configurations in the cluster.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ....plugin.node_device_plugin.cluster import manifests, node_readiness, pods, quantity
from ....plugin.node_device_plugin.cluster.api import Api, LacksRights, NotFound, Place, again_after_conflict
from ....plugin.node_device_plugin.cluster.extended_resources import capacities_of, info_of, is_ready
from ....plugin.node_device_plugin.declaration import Configuration, DeclarationError
from . import kubelet_of_a_pod, objects, proof
from .namespace import Namespace
from .objects import Change, DeploymentError, is_ours, own

_MONITORING = "monitoring.coreos.com/v1"
_ADMISSION, _RBAC = "admissionregistration.k8s.io/v1", "rbac.authorization.k8s.io/v1"
#: The objects of a grant, in the order in which to create them.
_GRANT = {
    "ClusterRole": ("clusterroles", _RBAC),
    "ValidatingAdmissionPolicy": ("validatingadmissionpolicies", _ADMISSION),
    "ValidatingAdmissionPolicyBinding": ("validatingadmissionpolicybindings", _ADMISSION),
    "ClusterRoleBinding": ("clusterrolebindings", _RBAC),
}


class DaemonSet:
    """The DaemonSet of a deployment."""

    def __init__(self, api: Api, deployment: manifests.Deployment) -> None:
        self.api = api
        self.deployment = deployment
        name, namespace = deployment.name, deployment.namespace
        self.place = Place("daemonsets", name, namespace, "apps/v1")
        self._config_map = Place("configmaps", name, namespace)
        account = Place("serviceaccounts", name, namespace)
        #: The objects that give pods rights, by kind and name, in the order in which to create them.
        self._rights = {("ServiceAccount", name): account}
        for each in manifests.grant_names(deployment):
            for kind, (kinds, group) in _GRANT.items():
                self._rights[kind, each] = Place(kinds, each, group=group)
        ours = (self._config_map, self.place, account)
        self.namespace = Namespace(api, deployment, ours)
        self._monitors = {
            "PodMonitor": Place("podmonitors", name, namespace, _MONITORING),
            "PrometheusRule": Place("prometheusrules", name, namespace, _MONITORING),
        }

    def configure(self, texts: Mapping[str, str]) -> list[Change]:
        """Write configurations, by node, and create a missing namespace and ConfigMap.

        Raises DeploymentError if other owners have these names, and DeclarationError if the ConfigMap has no room.
        """
        # Check for errors before anything is written.
        self.namespace.await_end()
        config_map = own(self._config_map, self.api.get(self._config_map))
        own(self.place, self.api.get(self.place))
        before = dict((config_map or {}).get("data") or {})
        after = _with_keys(before, texts)
        manifests.require_room(after)
        changes = self.namespace.make()
        if config_map is None:
            objects.apply(self.api, self._config_map, manifests.config_map(self.deployment, {}).content)
        return [*changes, *self.write(before, after)]

    def write(self, before: Mapping[str, str], after: Mapping[str, str]) -> list[Change]:
        """Write the configurations that differ. before, after: by node or manifests.DEFAULT."""
        keys = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
        # Patch only some keys, because with hundreds of nodes an apply of the complete object takes seconds.
        if keys and not (self.api.dry_run and self.api.get(self._config_map) is None):
            self.api.merge(self._config_map, {"data": {key: after.get(key) for key in keys}})
        return [Change(f"{self._config_map}, {key}", before.get(key), after.get(key)) for key in keys]

    def deploy(
        self, pending: Mapping[str, str], leaving: Collection[str], named: Callable[[], Iterable[str]]
    ) -> list[Change]:
        """Write the default, and apply the DaemonSet that all configurations need.

        pending: configurations of this play, by node or manifests.DEFAULT. leaving: nodes to remove. named: returns the
        nodes that have hosts of their own. Those that have the former default and are not in this play keep it. Raises
        DeploymentError and DeclarationError.
        """
        changes = [change for node in leaving for change in self.forget(node)]
        before = {node: text for node, text in self.data().items() if node not in leaving}
        if self.api.dry_run:
            # The cluster does not have the nodes' configurations yet.
            before = _with_keys(before, {node: text for node, text in pending.items() if node != manifests.DEFAULT})
        former = before.get(manifests.DEFAULT)
        is_other = former is not None and pending.get(manifests.DEFAULT, former) != former
        texts = {**(dict.fromkeys(named(), former) if is_other else {}), **before, **pending}
        after = self._without_repeats(texts)
        manifests.require_room(after)
        changes += self.write(before, after)
        nodes, ground = self._nodes_of(texts), self._ground(texts)
        manifest = manifests.daemon_set(self.deployment, ground, self._kubelets_overlap(nodes))
        self._refuse_full_nodes(manifest.content, nodes)
        changes += self._change_rights(
            manifests.rights(self.deployment, ground.drivers), self.deployment.node_condition
        )
        changes.append(objects.apply(self.api, self.place, manifest.content))
        wanted = {manifest.content["kind"]: manifest.content for manifest in manifests.monitors(self.deployment)}
        for kind, place in self._monitors.items():
            if kind not in wanted:
                changes.append(objects.delete(self.api, place))
                continue
            try:
                changes.append(objects.apply(self.api, place, wanted[kind]))
            except NotFound as error:
                raise DeploymentError(
                    f"the cluster does not serve {kind}s ({_MONITORING}): install the Prometheus operator, or remove "
                    "pod_monitor and alert_rules from device_plugin_deployment"
                ) from error
        return changes

    def _change_rights(self, wanted: Iterable[manifests.Manifest], sets_condition: bool) -> list[Change]:
        """Create or delete what gives pods rights, before the DaemonSet itself changes.

        A policy comes before the pods have the rights that it limits, and the rights come before the pods. Without the
        right to set their conditions, remove the pods' conditions. wanted: the objects, in the order in which to create
        them.
        """
        found, changes, had_rights, had_condition = self.api.get(self.place), [], False, False
        if found and is_ours(found):
            had_rights, had_condition = manifests.pod_rights(found["spec"]["template"]["spec"])
        left = dict(self._rights)
        for manifest in wanted:
            place = left.pop((manifest.content["kind"], manifest.content["metadata"]["name"]))
            own(place, self.api.get(place))
            changes.append(objects.apply(self.api, place, manifest.content))
        for place in reversed(left.values()):
            try:
                changes.append(objects.delete(self.api, place))
            except LacksRights:
                # Also without a DaemonSet, an earlier run that failed may have left rights, but hardly of this user.
                if had_rights:
                    raise
        if had_condition and not sets_condition:
            changes += [change for node in self.nodes() for change in self.forget_condition(node)]
        return changes

    def forget_condition(self, node: Mapping[str, Any]) -> list[Change]:
        """Remove the condition that the node's pod has set on a node object."""
        name = node["metadata"]["name"]
        if not node_readiness.condition_removal(node):
            return []

        def change() -> None:
            operations = node_readiness.condition_removal(self.api.get(Place("nodes", name)) or {})
            if operations:
                self.api.patch_node_status(name, operations)

        # The kubelet may change the list meanwhile.
        again_after_conflict(change)
        return [Change(f"condition of node {name}", node_readiness.CONDITION, None)]

    def _without_repeats(self, texts: Mapping[str, str]) -> Mapping[str, str]:
        """Return the configurations without nodes whose configuration is the default.

        While a pod of an earlier release is left, return all, because such a pod reads only its node's key.
        """
        default = texts.get(manifests.DEFAULT)
        repeats = {node for node, text in texts.items() if text == default} - {manifests.DEFAULT}
        if repeats and not all(manifests.reads_default(pod["spec"]) for pod in self.pods()):
            return texts
        return {node: text for node, text in texts.items() if node not in repeats}

    def _refuse_full_nodes(self, content: Mapping[str, Any], nodes: Iterable[Mapping[str, Any]]) -> None:
        """Raise DeploymentError if an update's new pod would preempt a pod of a full node."""
        surges = content["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 1
        if not (surges and self.deployment.priority_class and self.api.get(self.place)):
            return
        planned = objects.apply(self.api.dry(), self.place, dict(content))
        if planned.before["spec"]["template"] == planned.after["spec"]["template"]:
            return
        try:
            there = self.api.list(Place("pods"))
        except LacksRights:
            # Free slots are unknown without the permission to list pods.
            return
        counts = Counter(pod["spec"].get("nodeName") for pod in there if not pods.is_finished(pod))
        # Skip nodes that are not Ready, because they get no pod.
        ready = {node["metadata"]["name"]: node for node in nodes if is_ready(node) and self.is_selected(node)}
        full = [name for name, node in ready.items() if _slots(node) <= counts[name]]
        if full:
            raise DeploymentError(
                f"node {', '.join(full)} has no free pod slot for the plugin's new pod, which starts before the old "
                f"one ends, so with priority class {self.deployment.priority_class} it would preempt another pod. "
                "Free a slot, raise the kubelet's maxPods, or set device_plugin_deployment.overlap: never to end the "
                "old pod first"
            )

    def nodes(self) -> list[dict[str, Any]]:
        """Return the objects of the nodes that the DaemonSet selects."""
        selector = ",".join(f"{key}={value}" for key, value in self.deployment.selector.items())
        return [node for node in self.api.list(Place("nodes"), labelSelector=selector) if self.is_selected(node)]

    def _nodes_of(self, texts: Collection[str]) -> list[dict[str, Any]]:
        """Return the objects of nodes with a configuration, which may have no label yet; with a default, all nodes.

        Ignores nodes that have not joined. Lists the nodes that have the label, to read only others one by one.
        """
        selected = ((node["metadata"]["name"], node) for node in self.nodes())
        found = {name: node for name, node in selected if name in texts or manifests.DEFAULT in texts}
        others = (self.api.get(Place("nodes", name)) for name in {*texts} - {*found, manifests.DEFAULT})
        return [*found.values(), *(node for node in others if node is not None)]

    def _kubelets_overlap(self, nodes: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether each node's kubelet accepts two sockets of one resource.

        A pool without a node gets nodes like the cluster's others.
        """
        if self.deployment.overlap != "auto":
            return False
        return manifests.overlaps(info_of(node, "kubeletVersion") for node in nodes or self.api.list(Place("nodes")))

    def _ground(self, texts: Mapping[str, str]) -> manifests.CommonGround:
        configurations: dict[str, Configuration] = {}
        problems = []
        for node, text in texts.items():
            try:
                configurations[node] = manifests.read_configuration_text(text)
            except DeclarationError as error:
                problems += [f"{self._config_map}, key {node}: {problem}" for problem in error.problems]
        if problems:
            raise DeploymentError("\n".join(problems))
        return manifests.common_ground(configurations)

    def data(self) -> dict[str, str]:
        """Return the ConfigMap's configurations by node or manifests.DEFAULT."""
        config_map = self.api.get(self._config_map)
        return dict(config_map.get("data") or {}) if config_map and is_ours(config_map) else {}

    def texts(self) -> dict[str, str]:
        """Return the ConfigMap's configurations by node."""
        return {node: text for node, text in self.data().items() if node != manifests.DEFAULT}

    def select(self, node: str) -> Change:
        """Set the label that selects a node for the DaemonSet's pod. Raises DeploymentError if others set the label."""
        found = self.api.node(node)
        if not self.deployment.node_selector:
            return self._label(found, self.deployment.name)
        if not self.is_selected(found):
            raise DeploymentError(
                f"DaemonSet {self.deployment.name} does not select node {node}: give the node the labels of "
                f"device_plugin_deployment.node_selector, and remove label {manifests.NODE_LABEL} if it is there"
            )
        return Change(f"labels of node {node}", None, None)

    def _label(self, node: Mapping[str, Any], value: str | None) -> Change:
        """Set the label of a node object; None removes the label."""
        label, now, name = manifests.NODE_LABEL, _selected_by(node), node["metadata"]["name"]
        if now != value:
            self.api.merge(Place("nodes", name), {"metadata": {"labels": {label: value}}})
        return Change(f"label {label} of node {name}", now, value)

    def keeps(self, node: Mapping[str, Any]) -> bool:
        """Return whether the cluster's DaemonSet selects a node by labels that no play sets, such as a pool's."""
        found = self.api.get(self.place)
        selects = found["spec"]["template"]["spec"].get("nodeSelector") if found else None
        # A play that removes its own label from the node returns the node to the pool.
        return bool(selects) and manifests.NODE_LABEL not in selects and self.is_selected(node, selects)

    def is_selected(self, node: Mapping[str, Any], selector: Mapping[str, str] | None = None) -> bool:
        """Return whether a node object has these labels, or else the DaemonSet's, and is not another DaemonSet's."""
        labels = node["metadata"].get("labels") or {}
        is_of_another = labels.get(manifests.NODE_LABEL, self.deployment.name) != self.deployment.name
        return not is_of_another and (selector or self.deployment.selector).items() <= labels.items()

    def forget(self, node: str) -> list[Change]:
        """Remove a node's label, proof record and configuration. Without the label, the node's pod ends.

        The node object may be missing.
        """
        found, changes = self.api.get(Place("nodes", node)), []
        if found is not None and _selected_by(found) == self.deployment.name:
            changes.append(self._label(found, None))
        # The label and the record may be another DaemonSet's.
        if found is not None and _selected_by(found) in (None, self.deployment.name):
            changes += [*self.forget_proofs(found), *self.forget_condition(found)]
        return changes + self.forget_configuration(node)

    def forget_proofs(self, node: Mapping[str, Any]) -> list[Change]:
        """Remove the proof record of a node object."""
        record, name = proof.read_record(node), node["metadata"]["name"]
        if not record:
            return []
        proof.write_record(self.api, name, {})
        return [Change(f"annotation {proof.RECORD} of node {name}", record, None)]

    def forget_configuration(self, key: str) -> list[Change]:
        """Remove a configuration. key: a node without a pod of this DaemonSet, or manifests.DEFAULT."""
        text = self.data().get(key)
        return [] if text is None else self.write({key: text}, {})

    def dismantle(self, leaving: Iterable[str]) -> list[Change]:
        """Delete all objects if no node needs them.

        leaving: the nodes that this play removes. In check mode, the ConfigMap still has their keys.
        """
        if set(self.data()) - set(leaving):
            return []
        changes = self._change_rights((), sets_condition=False)
        changes += [objects.delete(self.api, place) for place in (*self._monitors.values(), self.place)]
        config_map = objects.delete(self.api, self._config_map)
        if config_map.changed:
            # Omit the nodes' keys, because `forget_configuration` already reported them.
            before = {key: value for key, value in config_map.before.items() if key != "data"}
            config_map = config_map._replace(before=before)
        return [*changes, config_map, *self.namespace.remove()]

    def pods(self, node: str | None = None) -> list[dict[str, Any]]:
        """Return the pods on a node, including terminating ones.

        node: empty for the pods that are not scheduled yet; None for all pods.
        """
        selector = f"app.kubernetes.io/name=node-device-plugin,app.kubernetes.io/instance={self.deployment.name}"
        place = Place("pods", namespace=self.deployment.namespace)
        fields = {} if node is None else {"fieldSelector": f"spec.nodeName={node}"}
        return self.api.list(place, labelSelector=selector, **fields)

    def waiting_for(self, node: str) -> dict[str, Any] | None:
        """Return the pod for a node that the scheduler has not placed there; None without such a pod."""
        return next((pod for pod in self.pods("") if node in meant_for(pod)), None)

    def warning(self, name: str) -> str:
        """Return the last warning event of an object, as the end of a sentence; empty without an event."""
        return _end(kubelet_of_a_pod.warning(self.api, self.deployment.namespace, name))

    def revision(self) -> str:
        """Return the revision label of up-to-date pods; empty until the DaemonSet's controller observes the change."""
        daemon_set = self.api.get(self.place)
        if daemon_set is None:
            return ""
        generation = daemon_set["metadata"].get("generation")
        if (daemon_set.get("status") or {}).get("observedGeneration") != generation:
            return ""
        place = Place("controllerrevisions", namespace=self.deployment.namespace, group="apps/v1")
        uid = daemon_set["metadata"]["uid"]
        revisions = [
            each
            for each in self.api.list(place)
            if any(owner.get("uid") == uid for owner in each["metadata"].get("ownerReferences") or ())
        ]
        newest = max(revisions, key=lambda each: each["revision"], default=None)
        return newest["metadata"]["labels"]["controller-revision-hash"] if newest else ""

    def progress(self) -> tuple[Any, int]:
        """Return a value that changes while pods are replaced, and the number of ready pods."""
        status = (self.api.get(self.place) or {}).get("status") or {}
        moving = ("observedGeneration", "desiredNumberScheduled", "updatedNumberScheduled")
        return [status.get(key) for key in moving], status.get("numberReady") or 0


class ReadOnce(DaemonSet):
    """A DaemonSet whose revision, pods and events are read once, in pages, instead of again for each node.

    Raises ApiError.
    """

    def __init__(self, api: Api, deployment: manifests.Deployment) -> None:
        super().__init__(api, deployment)
        self._revision, self._pods = super().revision(), super().pods()
        self._all_warnings = kubelet_of_a_pod.warnings(api, deployment.namespace, fieldSelector="type=Warning")
        self._by_node: dict[str, list[dict[str, Any]]] = {}
        for pod in self._pods:
            self._by_node.setdefault(pod["spec"].get("nodeName") or "", []).append(pod)
        self._waiting = {node: pod for pod in self.pods("") for node in meant_for(pod)}

    def pods(self, node: str | None = None) -> list[dict[str, Any]]:
        return self._pods if node is None else self._by_node.get(node, [])

    def revision(self) -> str:
        return self._revision

    def waiting_for(self, node: str) -> dict[str, Any] | None:
        return self._waiting.get(node)

    def warning(self, name: str) -> str:
        return _end(self._all_warnings.get(name, ""))


def _end(said: str) -> str:
    return f": {said}" if said else ""


def meant_for(pod: Mapping[str, Any]) -> Iterator[str]:
    """Yield the nodes in the pod's affinity. The DaemonSet controller created the pod for these nodes."""
    affinity = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    for term in affinity.get("nodeSelectorTerms") or ():
        for field in term.get("matchFields") or ():
            if field.get("key") == "metadata.name":
                yield from field.get("values") or ()


def _with_keys(texts: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Return the configurations with those of other nodes. A node with the default needs no new key."""
    default = texts.get(manifests.DEFAULT)
    return {**texts, **{node: text for node, text in more.items() if node in texts or text != default}}


def _slots(node: Mapping[str, Any]) -> float:
    """Return how many pods a node can have; infinite until its kubelet has reported."""
    total = quantity.number(capacities_of(node, "allocatable").get("pods"))
    return math.inf if total is None else float(total)


def _selected_by(node: Mapping[str, Any]) -> str | None:
    return (node["metadata"].get("labels") or {}).get(manifests.NODE_LABEL)
