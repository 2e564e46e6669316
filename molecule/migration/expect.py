"""Checks, through the API, nodes that move from the device plugin to DRA and back: expect.py KUBECONFIG STEP..."""

from __future__ import annotations

import os
import pathlib
import time
from typing import Any

from cluster_api import PODS, Cluster, expect, extended, until

FIRST, SECOND = "migration-worker1", "migration-worker2"
#: Each resource with the number of a node's devices, and of those that a pod has in its limits.
RESOURCES = {"example.com/camera": (2, 1), "myplugin.io/mydevice-1": (2, 1), "github.com.ihcsim/crand": (4, 2)}
OFFERED = {resource: str(offered) for resource, (offered, _wanted) in RESOURCES.items()}
LIMITS = {resource: str(wanted) for resource, (_offered, wanted) in RESOURCES.items()}
REPLICAS = 2
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
OF_DEPLOYMENT = f"{PODS}?labelSelector=app%3Dviewer"
#: The step watch goes on while this file exists.
WATCHING = pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"], "watching")
# Uses the devices until one is gone, and records on the node whether the container had all of them.
SCRIPT = """
camera=$(echo /dev/camera-*)
crands=$(ls /dev | grep -c ^crand)
uses_all() {
  [ "$DEV_1_ID_0" ] && [ "$CDI_PROVIDER" ] && grep -q ' /crand tmpfs ' /proc/mounts && head -c 1 $camera >/dev/null
}
while uses_all; do
  [ "$noted" ] || echo "$POD with $camera $DEV_1_ID_0 $crands crand" >>/seen
  noted=yes
  sleep 0.1
done
echo "$POD without" >>/seen
exit 1
"""


def deployment(cluster: Cluster) -> None:
    """Create a Deployment whose pods have all resources in their limits. One pod must always be available."""
    labels = {"matchLabels": {"app": "viewer"}}
    cluster.ask("POST", BUDGETS, {"metadata": {"name": "viewer"}, "spec": {"minAvailable": 1, "selector": labels}})
    template = {"metadata": {"labels": labels["matchLabels"]}, "spec": _pod(LIMITS)}
    spec = {"replicas": REPLICAS, "selector": labels, "template": template}
    cluster.ask("POST", DEPLOYMENTS, {"metadata": {"name": "viewer"}, "spec": spec})
    _all_run(cluster, 0)


def watch(cluster: Cluster) -> None:
    """Watch the Deployment until the file is removed. A pod was always available, and none failed or restarted."""
    least, pods = REPLICAS, set()
    while WATCHING.exists():
        try:
            status = cluster.ask("GET", f"{DEPLOYMENTS}/viewer")["status"]
            items = cluster.ask("GET", OF_DEPLOYMENT)["items"]
        except OSError:
            continue
        least = min(least, status.get("availableReplicas", 0))
        for pod in items:
            restarts = sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))
            assert pod["status"]["phase"] != "Failed" or "deletionTimestamp" in pod["metadata"], pod["status"]
            assert restarts == 0, pod["status"]
            pods.add(pod["metadata"]["name"])
        time.sleep(0.2)
    assert least >= 1, f"only {least} pods were available"
    print(f"at least {least} of {REPLICAS} pods were available; there were {len(pods)} pods")


def deny_slices(cluster: Cluster) -> None:
    """Let the API server refuse the ResourceSlices of the first node, except in dry runs, as before the drain."""
    rule = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [{**rule, "resources": ["resourceslices"]}]},
        "validations": [{"expression": f"has(request.dryRun) && request.dryRun || object.spec.nodeName != '{FIRST}'"}],
    }
    metadata = {"metadata": {"name": "no-slices"}}
    cluster.ask("POST", f"{ADMISSION}/validatingadmissionpolicies", {**metadata, "spec": spec})
    binding = {"policyName": "no-slices", "validationActions": ["Deny"]}
    cluster.ask("POST", f"{ADMISSION}/validatingadmissionpolicybindings", {**metadata, "spec": binding})


def allow_slices(cluster: Cluster) -> None:
    """End deny_slices."""
    cluster.ask("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/no-slices")
    cluster.ask("DELETE", f"{ADMISSION}/validatingadmissionpolicies/no-slices")


def only_first_cordoned(cluster: Cluster) -> None:
    """The failed move left the first node cordoned and empty, and the second as it was."""
    assert _cordoned(cluster) == [FIRST]
    _all_run(cluster, 0)
    assert {pod["spec"]["nodeName"] for pod in cluster.ask("GET", OF_DEPLOYMENT)["items"]} == {SECOND}
    assert extended(cluster, SECOND, "allocatable") == OFFERED
    assert not cluster.ask("GET", SLICES)["items"]


def by_plugin(cluster: Cluster) -> None:
    """Both nodes serve all resources by the device plugin, and no pod has a claim."""
    assert _cordoned(cluster) == []
    assert [extended(cluster, node, "allocatable") for node in (FIRST, SECOND)] == [OFFERED] * 2
    assert not cluster.ask("GET", SLICES)["items"]
    _all_run(cluster, 0)


def by_dra(cluster: Cluster) -> None:
    """Both nodes serve all resources by DRA, and each pod has a claim, which the scheduler created for its limits."""
    assert _cordoned(cluster) == []
    for node in (FIRST, SECOND):
        left = extended(cluster, node, "allocatable")
        assert set(left.values()) <= {"0"}, left
    slices = [each["spec"] for each in cluster.ask("GET", SLICES)["items"]]
    found = sorted((each["nodeName"], each["pool"]["name"], len(each["devices"])) for each in slices)
    assert found == sorted(
        (node, f"{node}/{'.'.join(reversed(resource.split('/')))}", offered)
        for node in (FIRST, SECOND)
        for resource, (offered, _wanted) in RESOURCES.items()
    ), found
    _all_run(cluster, REPLICAS)


def pod_without_device(cluster: Cluster) -> None:
    """Create a pod without limits. It records that it lacks devices, as a pod of the Deployment would."""
    spec = {**_pod({}), "nodeName": FIRST, "restartPolicy": "Never"}
    cluster.ask("POST", PODS, {"metadata": {"name": "without-limits"}, "spec": spec})
    until(lambda: cluster.ask("GET", f"{PODS}/without-limits")["status"]["phase"], lambda phase: phase == "Failed")


def _pod(limits: dict[str, str]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "localhost/node-devices/busybox:lab",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", SCRIPT],
        "env": [{"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
        "resources": {"limits": limits},
        "volumeMounts": [{"name": "seen", "mountPath": "/seen"}],
    }
    volume = {"name": "seen", "hostPath": {"path": "/run/lab-seen", "type": "FileOrCreate"}}
    quick = {"hostNetwork": True, "automountServiceAccountToken": False, "terminationGracePeriodSeconds": 1}
    return {"containers": [container], "volumes": [volume], **quick}


def _all_run(cluster: Cluster, with_claims: int) -> None:
    """Wait until all pods of the Deployment are available. with_claims: how many have claims for their limits."""

    def look() -> tuple[int, int]:
        pods = cluster.ask("GET", OF_DEPLOYMENT)["items"]
        available = cluster.ask("GET", f"{DEPLOYMENTS}/viewer")["status"].get("availableReplicas", 0)
        return available, sum("extendedResourceClaimStatus" in each["status"] for each in pods)

    until(look, lambda seen: seen == (REPLICAS, with_claims))
    print(f"all {REPLICAS} pods run, {with_claims} with a claim")


def _cordoned(cluster: Cluster) -> list[str]:
    nodes = cluster.ask("GET", "/api/v1/nodes")["items"]
    return [node["metadata"]["name"] for node in nodes if node["spec"].get("unschedulable")]


if __name__ == "__main__":
    expect(
        *(deployment, watch, deny_slices, allow_slices),
        *(only_first_cordoned, by_plugin, by_dra, pod_without_device),
    )
