# SPDX-License-Identifier: Apache-2.0
"""The plugin's DaemonSet in a cluster: applied, changed and taken away, a node at a time where it is a node's own.

A node's configuration is a key of the ConfigMap, and a play changes the keys of its own nodes alone, so one that knows
some nodes only leaves the others'. What the pods have in common is worked out of all configurations that are in the
cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    Api,
    LacksRights,
    NotFound,
    Place,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.extended_resources import is_ready
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import (
    Configuration,
    DeclarationError,
)

from . import daemonset_slot, proven
from .namespace import Namespace
from .objects import Change, DeploymentError, Objects, is_ours, own

_MONITORING = "monitoring.coreos.com/v1"
#: Told to a kubelet, it looks at a pod's volumes now: else a changed ConfigMap takes it a minute or more.
_LOOK = "nodedevices.kubernetes/configuration"


class DaemonSet:
    """deployment: how it is deployed. dry_run: the API server goes through everything, and keeps nothing."""

    def __init__(self, api: Api, deployment: manifests.Deployment, dry_run: bool = False) -> None:
        self.api = api
        self.deployment = deployment
        self._dry_run = dry_run
        self._objects = Objects(api, dry_run)
        name, namespace = deployment.name, deployment.namespace
        self.place = Place("daemonsets", name, namespace, "apps/v1")
        self._config_map = Place("configmaps", name, namespace)
        self._namespace = Namespace(self._objects, deployment, (self._config_map, self.place))
        self._monitors = {
            "PodMonitor": Place("podmonitors", name, namespace, _MONITORING),
            "PrometheusRule": Place("prometheusrules", name, namespace, _MONITORING),
        }

    def configure(self, node: str, text: str) -> list[Change]:
        """Put a node's configuration into the cluster, and the namespace around it.

        Raises DeclarationError where the ConfigMap does not take it.
        """
        # What cannot work is said before anything is written.
        self.api.node(node)
        self._namespace.await_end()
        config_map = own(self._config_map, self.api.get(self._config_map))
        _by_label(self.place, own(self.place, self.api.get(self.place)))
        texts = dict((config_map or {}).get("data") or {})
        manifests.require_room({**texts, node: text})
        changes = self._namespace.make()
        if config_map is None:
            self._objects.apply(self._config_map, manifests.config_map(self.deployment, {}).content)
        # Not applied with the whole object: for hundreds of nodes that takes the server seconds each time.
        if texts.get(node) != text and not (self._dry_run and config_map is None):
            self.api.merge(self._config_map, {"data": {node: text}}, self._dry_run)
        return [*changes, Change(f"{self._config_map}, {node}", texts.get(node), text)]

    def deploy(self, pending: Mapping[str, str], known: Iterable[str]) -> list[Change]:
        """Make the DaemonSet what the configurations in the cluster need.

        pending: node to its configuration, of this play; in check mode they are not in the cluster.
        known: other nodes that stay; what is there of those that are neither goes. Raises DeploymentError.
        """
        changes = [change for node in set(self.texts()) - {*known, *pending} for change in self.forget(node)]
        texts = {node: text for node, text in {**self.texts(), **pending}.items() if node in {*known, *pending}}
        ground = self._ground(texts)
        manifest = manifests.daemon_set(self.deployment, ground, sorted(texts), self._kubelets_overlap(texts))
        self._refuse_full_nodes(manifest.content, texts)
        changes.append(self._objects.apply(self.place, manifest.content))
        wanted = {manifest.content["kind"]: manifest.content for manifest in manifests.monitors(self.deployment)}
        for kind, place in self._monitors.items():
            if kind not in wanted:
                changes.append(self._objects.delete(place))
                continue
            try:
                changes.append(self._objects.apply(place, wanted[kind]))
            except NotFound as error:
                raise DeploymentError(
                    f"the cluster has no {kind}s ({_MONITORING}): install the Prometheus operator, or do without "
                    f"pod_monitor and alert_rules in device_plugin_deployment"
                ) from error
        return changes

    def _refuse_full_nodes(self, content: Mapping[str, Any], nodes: Iterable[str]) -> None:
        """Raise DeploymentError where an update of overlapping pods would end another pod for its second one."""
        surges = content["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 1
        if not (surges and self.deployment.priority_class and self.api.get(self.place)):
            return
        planned = Objects(self.api, dry_run=True).apply(self.place, dict(content))
        if planned.before["spec"]["template"] == planned.after["spec"]["template"]:
            return
        found = [self.api.get(Place("nodes", node)) for node in nodes]
        try:
            # A node that is not Ready gets no pod.
            found = [node for node in found if node is not None and is_ready(node)]
            full = daemonset_slot.full(self.api, [node for node in found if self.is_selected(node)])
        except LacksRights:
            # Who may not list pods does not know, and the scheduler decides.
            return
        if full:
            raise DeploymentError(
                f"the new pod of the plugin starts before the old one ends, and node {', '.join(full)} has no free pod "
                f"slot: for a pod of priority class {self.deployment.priority_class} another one would be ended. Free "
                f"a slot, raise maxPods of the kubelet, or have device_plugin_deployment.overlap: never, with which "
                f"the old pod ends first"
            )

    def _kubelets_overlap(self, nodes: Iterable[str]) -> bool:
        """Whether the kubelet of each node takes two sockets of a resource; of one that has not joined yet nothing is
        known, and it has no pod.
        """
        if self.deployment.overlap != "auto":
            return False
        found = [self.api.get(Place("nodes", node)) for node in nodes]
        infos = [(each.get("status") or {}).get("nodeInfo") or {} for each in found if each is not None]
        return manifests.overlaps(info.get("kubeletVersion") or "" for info in infos)

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
        try:
            return manifests.common_ground(configurations)
        except DeclarationError as error:
            raise DeploymentError("\n".join(map(str, error.problems))) from error

    def texts(self) -> dict[str, str]:
        """Node to its configuration, as the cluster has them now."""
        config_map = self.api.get(self._config_map)
        return dict(config_map.get("data") or {}) if config_map and is_ours(config_map) else {}

    def select(self, node: str, there: bool = True) -> Change:
        """Let the pod run on a node, or run there no more."""
        label, value = next(iter(manifests.node_label(self.deployment, there).items()))
        now = (self.api.node(node)["metadata"].get("labels") or {}).get(label)
        if not there and now != self.deployment.name:
            value = now  # another DaemonSet's, or nobody's
        if now != value:
            self.api.merge(Place("nodes", node), {"metadata": {"labels": {label: value}}}, self._dry_run)
        return Change(f"label {label} of node {node}", now, value)

    def is_selected(self, node: Mapping[str, Any]) -> bool:
        """Whether a node object has our label."""
        return _selected_by(node) == self.deployment.name

    def _is_anothers(self, node: Mapping[str, Any]) -> bool:
        return _selected_by(node) not in (None, self.deployment.name)

    def forget(self, node: str) -> list[Change]:
        """Take a node's part away: the pod, and then its configuration. The node itself may be gone."""
        found = self.api.get(Place("nodes", node))
        changes = [] if found is None or not self.is_selected(found) else [self.select(node, there=False)]
        record = {} if found is None or self._is_anothers(found) else proven.read(found)
        if record:
            proven.write(self.api, node, {}, self._dry_run)
            changes.append(Change(f"annotation {proven.ANNOTATION} of node {node}", record, None))
        return changes + self.forget_configuration(node)

    def forget_configuration(self, node: str) -> list[Change]:
        """Take a node's configuration away, of which no pod of ours is left."""
        text = self.texts().get(node)
        if text is None:
            return []
        self.api.merge(self._config_map, {"data": {node: None}}, self._dry_run)
        return [Change(f"{self._config_map}, {node}", text, None)]

    def dismantle(self, leaving: Iterable[str]) -> list[Change]:
        """Take away what no node needs any more. leaving: nodes of this play, which in check mode still have a key."""
        if set(self.texts()) - set(leaving):
            return []
        changes = [self._objects.delete(place) for place in (*self._monitors.values(), self.place)]
        config_map = self._objects.delete(self._config_map)
        if config_map.changed:
            # `forget_configuration` shows each node's key; in check mode, they are all still there.
            before = {key: value for key, value in config_map.before.items() if key != "data"}
            config_map = config_map._replace(before=before)
        return [*changes, config_map, *self._namespace.remove()]

    @property
    def namespace_kept(self) -> str:
        """Why `dismantle` left our namespace; empty if it did not."""
        return self._namespace.kept

    def pods(self, node: str) -> list[dict[str, Any]]:
        """The pods on a node, those that end already too."""
        selector = f"app.kubernetes.io/name=node-device-plugin,app.kubernetes.io/instance={self.deployment.name}"
        place = Place("pods", namespace=self.deployment.namespace)
        return self.api.list(place, labelSelector=selector, fieldSelector=f"spec.nodeName={node}")

    def unassigned(self) -> list[dict[str, Any]]:
        """The pods that are on no node yet."""
        return self.pods("")

    def let_look(self, pod: Mapping[str, Any], reason: str) -> None:
        """Make the kubelet look at a pod's volumes now. reason: another one each time."""
        place = Place("pods", pod["metadata"]["name"], self.deployment.namespace)
        self.api.merge(place, {"metadata": {"annotations": {_LOOK: reason}}})

    def revision(self) -> str:
        """The label value of pods that are as the DaemonSet says now; empty while its controller has not looked yet."""
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
        """Something that changes while pods are replaced, and how many of them are ready."""
        status = (self.api.get(self.place) or {}).get("status") or {}
        moving = ("observedGeneration", "desiredNumberScheduled", "updatedNumberScheduled")
        return [status.get(key) for key in moving], status.get("numberReady") or 0


def _selected_by(node: Mapping[str, Any]) -> str | None:
    return (node["metadata"].get("labels") or {}).get(manifests.NODE_LABEL)


def _by_label(place: Place, found: dict[str, Any] | None) -> None:
    """Raises DeploymentError for a DaemonSet that the command ``manifests`` made: whoever applied that changes it."""
    if found and manifests.NODE_LABEL not in (found["spec"]["template"]["spec"].get("nodeSelector") or {}):
        raise DeploymentError(
            f"{place} names its nodes itself, so it was not deployed by these playbooks: give device_plugin_deployment "
            f"another name and take the nodes out there, or delete it first"
        )
