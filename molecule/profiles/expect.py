"""Checks, through the API, a node that joins and leaves a pool: expect.py KUBECONFIG STEP..."""

from __future__ import annotations

from typing import Any

from cluster_api import PODS, Cluster, advertises, expect, until

NODE, RESOURCE, POD = "profiles-worker", "example.com/random", "wants-a-device"
PLUGINS = "/api/v1/namespaces/node-devices"
POOL = "lab.example.com/pool"


def waits(cluster: Cluster) -> None:
    """Check that the profile is there without a node, and start a pod that waits for its device."""
    assert _plugins(cluster) == [], "no node is in the pool"
    assert set(cluster.ask("GET", f"{PLUGINS}/configmaps/pool")["data"]) == {"_default"}
    container = {
        "name": "main",
        "image": "localhost/node-devices/busybox:lab",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", "ls /dev/pool-random && exec sleep 3600"],
        "resources": {"limits": {RESOURCE: "1"}},
    }
    spec = {"containers": [container], "hostNetwork": True, "automountServiceAccountToken": False}
    cluster.ask("POST", PODS, {"metadata": {"name": POD}, "spec": spec})
    until(lambda: _phase(cluster), lambda phase: phase == "Pending")


def joins(cluster: Cluster) -> None:
    """Label the node as a cloud does, and wait until the plugin serves there."""
    _label(cluster, "gpu")
    until(lambda: [_is_ready(pod) for pod in _plugins(cluster)], lambda seen: seen == [True])


def device_inside(cluster: Cluster) -> None:
    """Wait until the pod has its device."""
    until(lambda: _phase(cluster), lambda phase: phase == "Running")
    log = until(lambda: cluster.ask("GET", f"{PODS}/{POD}/log"), lambda text: bool(text))
    assert log == "/dev/pool-random\n", log
    print(f"{POD} runs on {NODE} with /dev/pool-random")


def follows(cluster: Cluster) -> None:
    """Wait until the node offers the shares of the new declaration; the plugin did not restart."""
    advertises(cluster, NODE, RESOURCE, {RESOURCE: "3"})
    (pod,) = _plugins(cluster)
    assert [each["restartCount"] for each in pod["status"]["containerStatuses"]] == [0]


def leaves(cluster: Cluster) -> None:
    """Move the node out of the pool, and wait until the plugin's pod has ended. The other pod keeps running."""
    _label(cluster, "other")
    until(lambda: _plugins(cluster), lambda pods: pods == [])
    assert _phase(cluster) == "Running"


def nothing_left(cluster: Cluster) -> None:
    """Check that the uninstall removed every object of the profile."""
    names = [each["metadata"]["name"] for each in cluster.ask("GET", "/api/v1/namespaces")["items"]]
    until(
        lambda: [each["metadata"]["name"] for each in cluster.ask("GET", "/api/v1/namespaces")["items"]],
        lambda there: "node-devices" not in there,
    )
    print(f"before: {', '.join(names)}")
    assert _phase(cluster) == "Running"


def _label(cluster: Cluster, value: str) -> None:
    change = {"metadata": {"labels": {POOL: value}}}
    cluster.ask("PATCH", f"/api/v1/nodes/{NODE}", change, "application/merge-patch+json")


def _plugins(cluster: Cluster) -> list[dict[str, Any]]:
    selector = "labelSelector=app.kubernetes.io%2Finstance%3Dpool"
    found: list[dict[str, Any]] = cluster.ask("GET", f"{PLUGINS}/pods?{selector}")["items"]
    return found


def _is_ready(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))


def _phase(cluster: Cluster) -> str:
    return str(cluster.ask("GET", f"{PODS}/{POD}")["status"]["phase"])


if __name__ == "__main__":
    expect(waits, joins, device_inside, follows, leaves, nothing_left)
