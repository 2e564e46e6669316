# SPDX-License-Identifier: Apache-2.0
"""Creates the DaemonSet's namespace, and deletes our namespace if it contains only our objects."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ....plugin.node_device_plugin.cluster import manifests
from ....plugin.node_device_plugin.cluster.api import Api, ApiError, NotFound, Place
from . import objects
from .objects import Change, DeploymentError, is_ours

_NAME = "app.kubernetes.io/name"
_ENFORCE = "pod-security.kubernetes.io/enforce"
# Matches the error of Pod Security for a forbidden pod.
_VIOLATES = re.compile(r'violates PodSecurity "(\w+):')
# Seconds that the deletion of a namespace may take, and between two checks.
_ENDING = 60.0
_PAUSE = 0.5
# Objects that Kubernetes, OpenShift and Istio create in every namespace.
_OF_EVERY_NAMESPACE = {
    ("configmaps", "kube-root-ca.crt"),
    ("configmaps", "openshift-service-ca.crt"),
    ("configmaps", "istio-ca-root-cert"),
    *(("serviceaccounts", name) for name in ("default", "builder", "deployer")),
    *(("rolebindings", f"system:{name}") for name in ("image-pullers", "image-builders", "deployers")),
}
_OF_SERVICE_ACCOUNTS = {"kubernetes.io/service-account-token", "kubernetes.io/dockercfg"}
#: Kinds and groups of objects that controllers derive from other objects. _MEASURED: API groups of metrics.
_DERIVED = {("endpoints", ""), ("endpointslices", "discovery.k8s.io"), ("events", ""), ("events", "events.k8s.io")}
_MEASURED = ("metrics.k8s.io", "custom.metrics.k8s.io", "external.metrics.k8s.io")


class Namespace:
    """The namespace of a deployment. ours: our objects in the namespace."""

    def __init__(self, api: Api, deployment: manifests.Deployment, ours: Iterable[Place]) -> None:
        self._api = api
        self._deployment = deployment
        self._ours = tuple(ours)
        self._place = Place("namespaces", deployment.namespace)
        #: The reason why `remove` kept our namespace; empty otherwise.
        self.kept = ""

    def await_end(self) -> None:
        """Wait until a terminating namespace, as after an uninstall, no longer exists. Raises DeploymentError."""
        deadline = time.monotonic() + (0 if self._api.dry_run else _ENDING)
        while ((self._api.get(self._place) or {}).get("metadata") or {}).get("deletionTimestamp"):
            if time.monotonic() >= deadline:
                name = self._deployment.namespace
                raise DeploymentError(
                    f"namespace {name} is still being deleted: run again when it is gone (kubectl get namespace "
                    f"{name} --output yaml shows what blocks it)"
                )
            time.sleep(_PAUSE)

    def make(self) -> list[Change]:
        """Create or update our namespace. Raises DeploymentError if another owner's namespace forbids our pods."""
        now = self._api.get(self._place)
        if now is not None and not is_ours(now):
            level = (now["metadata"].get("labels") or {}).get(_ENFORCE) or self._enforced_by_default()
            if level != "privileged":
                raise DeploymentError(
                    f"namespace {self._deployment.namespace} belongs to others and enforces Pod Security level "
                    f"{level}, which forbids the plugin's host directories: label it {_ENFORCE}=privileged, or set "
                    "another device_plugin_deployment.namespace"
                )
            return []
        return [objects.apply(self._api, self._place, manifests.namespace(self._deployment).content)]

    def _enforced_by_default(self) -> str:
        """Return the API server's default Pod Security level. Uses a dry run, because no object shows the level."""
        place = Place("pods", namespace=self._deployment.namespace)
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"generateName": f"{self._deployment.name}-"},
            "spec": {
                "automountServiceAccountToken": False,
                "containers": [{"name": manifests.CONTAINER, "image": self._deployment.image}],
                "volumes": [{"name": "host", "hostPath": {"path": "/dev"}}],
            },
        }
        try:
            self._api.dry().create(place, pod)
        except ApiError as error:
            # Ignore other errors, because the DaemonSet's pods will show them.
            found = _VIOLATES.search(str(error))
            return found.group(1) if found else "privileged"
        return "privileged"

    def remove(self) -> list[Change]:
        """Delete our namespace if it contains only our objects. Otherwise set `kept` to the reason."""
        found = self._api.get(self._place)
        if found is None or not is_ours(found):
            return []
        self.kept = self._others()
        return [] if self.kept else [objects.delete(self._api, self._place)]

    def _others(self) -> str:
        """Return a text about the first object of another owner, or about an API error; empty without such objects."""
        try:
            for kind in self._api.kinds_of_namespaces(but=_MEASURED):
                if (kind.kinds, kind.group.rpartition("/")[0]) in _DERIVED:
                    continue
                try:
                    found = self._api.list(kind._replace(namespace=self._deployment.namespace))
                except NotFound:
                    # The API server no longer has this kind.
                    continue
                for each in found:
                    if self._is_others(kind.kinds, each):
                        return f"it still contains {kind.kinds} {each['metadata']['name']}"
        except ApiError as error:
            return f"it cannot be checked for objects of others: {error}"
        return ""

    def _is_others(self, kind: str, found: Mapping[str, Any]) -> bool:
        name, labels = found["metadata"]["name"], found["metadata"].get("labels") or {}
        owners = {owner.get("kind") for owner in found["metadata"].get("ownerReferences") or ()}
        # Kubernetes deletes pods and revisions after their DaemonSet, which may also be another one of ours.
        of_our_daemon_set = "DaemonSet" in owners and labels.get(_NAME) == manifests.LABELS[_NAME]
        return (
            (kind, name) not in {(place.kinds, place.name) for place in self._ours} | _OF_EVERY_NAMESPACE
            and not of_our_daemon_set
            and found.get("type") not in _OF_SERVICE_ACCOUNTS
        )
