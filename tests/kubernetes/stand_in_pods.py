"""Pods, PodDisruptionBudgets and ResourceSlices of the stand-in API server, as far as a run needs them.

Taken from kube-apiserver 1.36.2, which the same tests run against where it is there: what the eviction of a pod answers
while a budget allows none, of a pod that has gone, and of one whose name another one has by now.
"""

from __future__ import annotations

import itertools
import threading
from typing import Any


class StatusError(Exception):
    """An answer other than 200. causes: for programs."""

    def __init__(self, code: int, message: str, causes: tuple[dict[str, str], ...] = ()) -> None:
        self.code, self.message, self.causes = code, message, causes
        super().__init__(message)


class Pods:
    """Of all namespaces; deleted at once on request, else when a kubelet does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._uids = itertools.count(1)
        self._pods: dict[tuple[str, str], dict[str, Any]] = {}
        self._budgets: dict[tuple[str, str], dict[str, Any]] = {}
        self._slices: dict[str, dict[str, Any]] = {}

    def answer(self, method: str, parts: list[str], query: dict[str, str], content: Any) -> dict[str, Any]:
        """parts: of the address, after its version."""
        with self._lock:
            if parts == ["pods"]:
                node = query.get("fieldSelector", "spec.nodeName=").removeprefix("spec.nodeName=")
                items = [pod for pod in self._pods.values() if not node or pod["spec"]["nodeName"] == node]
                return {"kind": "PodList", "items": items}
            if parts[0] == "resourceslices":
                return self._of_slices(method, parts[1:], query, content)
            _namespaces, namespace, kinds, name, part = (*parts, "", "")[:5]
            if kinds == "serviceaccounts":
                raise StatusError(409, f'serviceaccounts "{content["metadata"]["name"]}" already exists')
            key = (namespace, name or content["metadata"]["name"])
            if kinds == "poddisruptionbudgets":
                self._budgets[key] = {**self._budgets.get(key, {}), **content}
                return {"kind": "PodDisruptionBudget", **self._budgets[key]}
            if method == "POST" and not part:
                metadata = {"uid": str(next(self._uids)), "namespace": namespace, **content["metadata"]}
                self._pods[key] = {"status": {"phase": "Pending"}, **content, "metadata": metadata}
                return {"kind": "Pod", **self._pods[key]}
            if key not in self._pods:
                raise StatusError(404, f'pods "{key[1]}" not found')
            pod = self._pods[key]
            if method == "POST":
                return self._evict(pod, content, "dryRun" in query)
            if method == "PATCH":
                pod["status"] = {**pod["status"], **content["status"]}
            elif method == "DELETE":
                del self._pods[key]
            return {"kind": "Pod", **pod}

    def _of_slices(self, method: str, name: list[str], query: dict[str, str], content: Any) -> dict[str, Any]:
        if method == "POST":
            self._slices[content["metadata"]["name"]] = content
        elif method == "DELETE":
            del self._slices[name[0]]
        node = query.get("fieldSelector", "").removeprefix("spec.nodeName=")
        return {
            "kind": "ResourceSliceList",
            "items": [each for each in self._slices.values() if each["spec"]["nodeName"] == node],
        }

    def _evict(self, pod: dict[str, Any], eviction: dict[str, Any], dry_run: bool) -> dict[str, Any]:
        metadata = pod["metadata"]
        wanted = eviction["deleteOptions"]["preconditions"]["uid"]
        if wanted != metadata["uid"]:
            raise StatusError(
                409,
                f'Operation cannot be fulfilled on pods "{metadata["name"]}": the UID in the precondition ({wanted}) '
                f"does not match the UID in record ({metadata['uid']}). The object might have been deleted and then "
                f"recreated",
            )
        for (namespace, name), budget in self._budgets.items():
            labels = budget["spec"]["selector"]["matchLabels"]
            selected = labels.items() <= metadata.get("labels", {}).items()
            if namespace == metadata["namespace"] and selected and not budget["status"]["disruptionsAllowed"]:
                status = budget["status"]
                cause = {
                    "reason": "DisruptionBudget",
                    "message": f"The disruption budget {name} needs {status['desiredHealthy']} healthy pods and has "
                    f"{status['currentHealthy']} currently",
                }
                raise StatusError(429, "Cannot evict pod as it would violate the pod's disruption budget.", (cause,))
        if not dry_run:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return {"kind": "Status", "status": "Success", "code": 201}
