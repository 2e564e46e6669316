"""A cluster with the nodes and pods of a profile, in lists as the API server answers them."""

from __future__ import annotations

import types

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.fleet import members
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import deployed
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import ReadOnce

CAMERA = "example.com/camera"
SELECTOR = {"pool": "gpu"}
DECLARED = {
    "configuration": {"resources": []},
    "resources": [{"name": CAMERA, "min_devices": 0}],
    "capacities": {},
    "needs_cdi": False,
}
_IMAGE = {"image": "example.com/plugin:1", "imageID": "example.com/plugin@sha256:1"}


def ready(**more):
    """The pod's container of the plugin, which runs unless the state is another."""
    of_plugin = {"name": manifests.CONTAINER, "ready": True, "state": {"running": {}}, **_IMAGE, **more}
    return {"containerStatuses": [of_plugin]}


def waiting(reason, message):
    return ready(ready=False, state={"waiting": {"reason": reason, "message": message}})


class Pool:
    """A cluster with a profile's DaemonSet."""

    def __init__(self):
        self.nodes, self.pods, self.named = [], [], {}
        #: The number of devices by pool.
        self.slices = {}
        ours = {"name": "gpu", "labels": manifests.LABELS, "uid": "1", "generation": 1}
        self._daemon_set = {"metadata": ours, "status": {"observedGeneration": 1}}
        self._daemon_set["spec"] = {"template": {"spec": {"nodeSelector": SELECTOR}}}
        self._daemon_set["metadata"]["namespace"] = "node-devices"
        revision = {"ownerReferences": [{"uid": "1"}], "labels": {"controller-revision-hash": "new"}}
        self._revisions = [{"metadata": revision, "revision": 1}]
        metrics = 'node_device_plugin_configuration_info{sha256="%s"} 1\n'
        self._default = deployed.configuration_text(DECLARED)
        applied = metrics % manifests.sha256_of(self._default)
        api = types.SimpleNamespace(list=self._list, get=self._get, text=lambda _place: applied)
        self._api, self._deployment = api, deployed.parse({"name": "gpu", "node_selector": SELECTOR})

    def _list(self, place, labelSelector="", fieldSelector=None):
        if place.kinds == "nodes":
            # The labels of a pool, or KEY,KEY notin (VALUES).
            label, _separator, but = labelSelector.partition(",")
            key, _separator, value = label.partition("=")
            found = [(node, node["metadata"]["labels"]) for node in self.nodes]
            selected = [(node, labels[key]) for node, labels in found if key in labels]
            return [node for node, own in selected if value in ("", own) and own not in but]
        if place.kinds == "resourceslices":
            assert fieldSelector == "spec.driver=nodedevices.kubernetes"
            specs = [{"pool": {"name": name}, "devices": [{}] * count} for name, count in self.slices.items()]
            return [{"spec": spec} for spec in specs]
        if place.kinds == "pods" and fieldSelector is None:
            return self.pods
        return {"daemonsets": [self._daemon_set], "controllerrevisions": self._revisions}.get(place.kinds, [])

    def _get(self, place):
        data = {manifests.DEFAULT: self._default, **self.named}
        config_map = {"metadata": {"labels": manifests.MANAGED_BY}, "data": data}
        return {"configmaps": config_map, "daemonsets": self._daemon_set}.get(place.kinds)

    def add(self, name, *, count=2, usable=None, labels=SELECTOR, pod=None, revision="new", **info):
        """A node with its pod. count, usable: cameras; None if the kubelet lists none. pod: its status; {} for none."""
        usable = count if usable is None else usable
        quantities = [{} if each is None else {CAMERA: str(each)} for each in (count, usable)]
        shown = {"containerRuntimeVersion": "containerd://2.1.4", "kubeletVersion": "v1.37.0", "architecture": "amd64"}
        wrote = {"manager": "kubelet", "subresource": "status"}
        wrote["fieldsV1"] = {"f:status": {"f:capacity": {f"f:{key}": {} for key in quantities[0]}}}
        status = {
            "capacity": {"cpu": "8", **quantities[0]},
            "allocatable": {"cpu": "8", **quantities[1]},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {**shown, **info},
        }
        node = {"metadata": {"name": name, "labels": labels, "managedFields": [wrote]}, "status": status}
        self.nodes.append(node)
        if pod != {}:
            container = {"name": manifests.CONTAINER, "image": "example.com/plugin:1", "ports": [{"containerPort": 1}]}
            spec = {"nodeName": name, "containers": [container]}
            own = {"name": f"gpu-{len(self.nodes):05}", "namespace": "node-devices"}
            own["labels"] = {"controller-revision-hash": revision}
            self.pods.append({"metadata": own, "spec": spec, "status": pod or {**ready(), "phase": "Running"}})
        return node

    def is_away(self, name, message="Kubelet stopped posting node status."):
        (node,) = [each for each in self.nodes if each["metadata"]["name"] == name]
        node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "message": message}]

    def statuses(self, declared=None, **more):
        return members.statuses(
            "gpu-pool", ReadOnce(self._api, self._deployment), declared or DECLARED, sample=0, **more
        )
