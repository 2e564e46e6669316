"""Checks fixed capacities of node objects, and pods that use them: expect.py KUBECONFIG STEP..."""

from __future__ import annotations

import json
import time
import urllib.error

from cluster_api import Cluster, advertises, expect, extended, is_pending, no_pods, runs, until

CONTROL_PLANE, NODE = "resources-control-plane", "resources-worker"
NODES = (CONTROL_PLANE, NODE)
TAINT = "example.com/joining"
ANNOTATION = "nodedevices.kubernetes/extended-resources"


def tainted(cluster: Cluster) -> None:
    """Give the node the startup taint that its host declares."""
    taint = {"key": TAINT, "effect": "NoSchedule"}
    content = {"spec": {"taints": [taint]}}
    cluster.ask("PATCH", f"/api/v1/nodes/{NODE}", content, "application/merge-patch+json")


def untainted(cluster: Cluster) -> None:
    """Check that the play removed the startup taint, and that the node object shows the plugin's devices."""
    assert TAINT not in [each["key"] for each in cluster.ask("GET", f"/api/v1/nodes/{NODE}")["spec"].get("taints", ())]
    advertises(cluster, NODE, "github.com.ihcsim/", {"github.com.ihcsim/crand": "3"})


def static(cluster: Cluster) -> None:
    """Check a fixed capacity: one node has it, a pod gets it, and a second pod waits."""
    advertises(cluster, NODE, "example.com/", {"example.com/dongle": "4", "example.com/hundreds": "23k"})
    advertises(cluster, CONTROL_PLANE, "example.com/", {})
    cluster.create("dongle-1", {"example.com/dongle": 3})
    runs(cluster, "dongle-1", NODE, [])
    cluster.create("dongle-2", {"example.com/dongle": 2})
    words = {"1 Insufficient example.com/dongle", "1 node(s) had untolerated taint(s)"}
    is_pending(cluster, "dongle-2", len(NODES), words)


def quota(cluster: Cluster) -> None:
    """Check that a quota refuses a second pod with a device of the plugin, and one with a fixed capacity."""
    path = "/api/v1/namespaces/default/resourcequotas"
    wanted = {"github.com.ihcsim/crand": 1, "example.com/dongle": 1}
    hard = {f"requests.{resource}": str(count) for resource, count in wanted.items()}
    cluster.ask("POST", path, {"metadata": {"name": "devices"}, "spec": {"hard": hard}})
    until(lambda: cluster.ask("GET", f"{path}/devices"), lambda seen: seen.get("status", {}).get("hard") == hard)
    cluster.create("counted", wanted)
    runs(cluster, "counted", NODE, [])
    for resource in wanted:
        message = refusal(cluster, resource)
        name = f"requests.{resource}=1"
        assert f"exceeded quota: devices, requested: {name}, used: {name}, limited: {name}" in message, message
        print(message)
    cluster.ask("DELETE", f"{path}/devices")


def refusal(cluster: Cluster, resource: str) -> str:
    """Return why the API server does not create a pod that requests the resource; empty if it does."""
    try:
        cluster.create("too-much", {resource: 1})
    except urllib.error.HTTPError as error:
        return str(json.load(error)["message"])
    return ""


def reset(cluster: Cluster) -> None:
    """Reset the capacity as a kubelet does at its start with unknown extended resources."""
    for part in ("capacity", "allocatable"):
        operation = {"op": "add", "path": f"/status/{part}/example.com~1dongle", "value": "0"}
        path = f"/api/v1/nodes/{NODE}/status?fieldManager=kubelet"
        cluster.ask("PATCH", path, [operation], "application/json-patch+json")


def restored(cluster: Cluster) -> None:
    """Wait until the node's timer has restored the capacities."""
    begin = time.monotonic()
    advertises(cluster, NODE, "example.com/", {"example.com/dongle": "4", "example.com/hundreds": "23k"})
    print(f"restored and allocatable within {time.monotonic() - begin:.1f} s")


def nothing_left(cluster: Cluster) -> None:
    """Check that the node objects have none of our resources, also after the kubelets' next update."""
    for node in NODES:
        advertises(cluster, node, "", {})
        assert ANNOTATION not in cluster.ask("GET", f"/api/v1/nodes/{node}")["metadata"]["annotations"]
    before = heartbeats(cluster)
    until(lambda: heartbeats(cluster), lambda now: all(now[node] > before[node] for node in before))
    for node in NODES:
        assert extended(cluster, node, "capacity") == {}, "the kubelet wrote it again"


def heartbeats(cluster: Cluster) -> dict[str, str]:
    """Return each kubelet's last renewal of its lease. A kubelet renews the lease as often as it updates its node."""
    leases = cluster.ask("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")["items"]
    return {lease["metadata"]["name"]: lease["spec"]["renewTime"] for lease in leases}


if __name__ == "__main__":
    expect(tainted, untainted, static, quota, reset, restored, no_pods, nothing_left)
