"""Checks, through the API, a node that joins, changes and leaves a pool: expect.py KUBECONFIG STEP..."""

from __future__ import annotations

import copy
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import urllib.error
from typing import Any

from cluster_api import PODS, Cluster, advertises, expect, extended, until

NODE, NAMED = "profiles-worker", "profiles-control-plane"
RESOURCE, OTHER, POD = "example.com/random", "example.com/other", "wants-a-device"
PLUGINS = "/api/v1/namespaces/node-devices"
DAEMON_SETS = "/apis/apps/v1/namespaces/node-devices/daemonsets"
POOL, CHOSEN = "lab.example.com/pool", "nodedevices.kubernetes/device-plugin"
# A pod that requests no device, so that only the startup taint keeps it from the node.
FOLLOWER = "waits-for-the-node"
TAINT, CONDITION = "startup-taint.cluster-autoscaler.kubernetes.io/devices", "NodeDevicesReady"
MERGE, PATCH = "application/merge-patch+json", "application/json-patch+json"
ADMISSION, RBAC = "/apis/admissionregistration.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"
CHECKOUT = pathlib.Path(__file__).resolve().parents[2]


def named(cluster: Cluster) -> None:
    """Put the node with a host of its own into the pool."""
    _label(cluster, NAMED, POOL, "gpu")


def waits(cluster: Cluster) -> None:
    """Check that the profile is there without a node, and start a pod that waits for its device, and one for the node.

    The node has its startup taint already, as when a cloud makes it.
    """
    assert _plugins(cluster) == [], "no node is in the pool"
    assert set(cluster.ask("GET", f"{PLUGINS}/configmaps/pool")["data"]) == {"_default", NAMED}
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
    taint = {"key": TAINT, "value": "true", "effect": "NoSchedule"}
    cluster.ask("PATCH", f"/api/v1/nodes/{NODE}", {"spec": {"taints": [taint]}}, MERGE)
    follower = {**container, "command": ["sleep", "3600"], "resources": {}}
    spec = {**spec, "containers": [follower], "nodeSelector": {POOL: "gpu"}}
    cluster.ask("POST", PODS, {"metadata": {"name": FOLLOWER}, "spec": spec})


def joins_tainted(cluster: Cluster) -> None:
    """Label the node as a cloud does. No pod starts there until the node object shows the devices."""
    _label(cluster, NODE, POOL, "gpu")
    since, shown = time.monotonic(), 0.0

    def look() -> bool:
        """Whether the node has lost its startup taint."""
        nonlocal shown
        # Read the pod first: the taint may go between two reads.
        bound = cluster.ask("GET", f"{PODS}/{FOLLOWER}")["spec"].get("nodeName")
        node = cluster.ask("GET", f"/api/v1/nodes/{NODE}")
        is_tainted = any(each["key"] == TAINT for each in node["spec"].get("taints", ()))
        count = node["status"]["allocatable"].get(RESOURCE)
        shown = shown or (time.monotonic() - since if count == "2" else 0.0)
        assert not (is_tainted and bound), f"{FOLLOWER} runs on {bound} despite the taint"
        assert is_tainted or count == "2", f"the taint is gone, and {RESOURCE} is {count}"
        return not is_tainted

    until(look, lambda is_gone: is_gone)
    gone = time.monotonic() - since
    until(lambda: _phase(cluster, FOLLOWER), lambda phase: phase == "Running")
    runs = time.monotonic() - since
    print(f"after the label: devices shown {shown:.1f} s, taint gone {gone:.1f} s, pod runs {runs:.1f} s")
    condition = until(lambda: _condition(cluster, NODE), lambda found: found.get("status") == "True")
    print(f"{CONDITION}: {condition['reason']}: {condition['message']}")
    # Kubernetes checks the types of the policy's expressions, and found no warning.
    policy = f"{ADMISSION}/validatingadmissionpolicies/pool.node-devices"
    until(lambda: cluster.ask("GET", policy)["status"].get("typeChecking"), lambda checked: checked == {})


def own_node_only(cluster: Cluster) -> None:
    """Use the token of the plugin's pod for what it is not for. The API server refuses each try."""
    (pod,) = _plugins(cluster)
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
    request = {"spec": {"audiences": [], "boundObjectRef": bound}}
    plugin = copy.copy(cluster)
    plugin._token = cluster.ask("POST", f"{PLUGINS}/serviceaccounts/pool/token", request)["status"]["token"]
    assert plugin.ask("PATCH", f"/api/v1/nodes/{NODE}", {}, MERGE)["metadata"]["name"] == NODE
    for node, part, content, kind in (
        (NAMED, "", {}, MERGE),
        (NAMED, "", [{"op": "remove", "path": "/spec/taints/0"}], PATCH),
        (NODE, "", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}, MERGE),
        (NODE, "", {"metadata": {"labels": {POOL: "other"}}}, MERGE),
        (NODE, "/status", {"status": {"capacity": {RESOURCE: "100"}}}, MERGE),
    ):
        code, said = 200, ""
        try:
            plugin.ask("PATCH", f"/api/v1/nodes/{node}{part}", content, kind)
        except urllib.error.HTTPError as error:
            code, said = error.code, json.loads(error.read())["message"]
        assert code == 422, f"{code} {said}, for {content} of {node}{part}"
        print(said)


def joins(cluster: Cluster) -> None:
    """Label the node as a cloud does, and wait until the plugin serves there. Print the duration."""
    begin = time.monotonic()
    _label(cluster, NODE, POOL, "gpu")
    until(lambda: [_is_ready(pod) for pod in _plugins(cluster)], lambda seen: seen == [True])
    until(lambda: extended(cluster, NODE, "allocatable").get(RESOURCE), lambda count: count not in (None, "0"))
    print(f"{RESOURCE} is allocatable {time.monotonic() - begin:.1f} s after the label")
    until(lambda: _plugins(cluster, "other"), lambda pods: pods == [])


def device_inside(cluster: Cluster) -> None:
    """Wait until the pod has its device."""
    until(lambda: _phase(cluster), lambda phase: phase == "Running")
    log = until(lambda: cluster.ask("GET", f"{PODS}/{POD}/log"), lambda text: bool(text))
    assert log == "/dev/pool-random\n", log
    print(f"{POD} runs on {NODE} with /dev/pool-random, restarts: {_restarts(cluster.ask('GET', f'{PODS}/{POD}'))}")


def follows(cluster: Cluster) -> None:
    """Wait until the node offers the shares of the new declaration; the plugin did not restart."""
    advertises(cluster, NODE, RESOURCE, {RESOURCE: "3"})
    (pod,) = _plugins(cluster)
    assert _restarts(pod) == 0


def second_waits(cluster: Cluster) -> None:
    """Deploy a second DaemonSet for the same nodes, which no play does. Its pods serve nothing, and say why."""
    rendered = _second(cluster)
    for each in rendered:
        path = DAEMON_SETS if each["kind"] == "DaemonSet" else f"{PLUGINS}/configmaps"
        cluster.ask("POST", path, each)
    (pod,) = until(lambda: _plugins(cluster, "second"), lambda pods: [_runs(pod) for pod in pods] == [True])
    name = pod["metadata"]["name"]
    events = f"{PLUGINS}/events?fieldSelector=involvedObject.name%3D{name}%2Creason%3DUnhealthy"
    until(
        lambda: [each["message"] for each in cluster.ask("GET", events)["items"]],
        lambda seen: any("DaemonSet node-devices/pool serves this node's devices" in text for text in seen),
    )
    log = until(lambda: cluster.ask("GET", f"{PLUGINS}/pods/{name}/log"), lambda text: "node-devices/pool" in text)
    assert [_is_ready(each) for each in (*_plugins(cluster), *_plugins(cluster, "second"))] == [True, False]
    assert "example.com/second" not in extended(cluster, NODE, "capacity")
    advertises(cluster, NODE, RESOURCE, {RESOURCE: "3"})
    print(log.splitlines()[-1])
    cluster.ask("DELETE", f"{DAEMON_SETS}/second")
    cluster.ask("DELETE", f"{PLUGINS}/configmaps/second")
    until(lambda: _plugins(cluster, "second"), lambda pods: pods == [])


def _second(cluster: Cluster) -> list[dict[str, Any]]:
    """Render a ConfigMap and a DaemonSet with the plugin's command."""
    pool = cluster.ask("GET", f"{DAEMON_SETS}/pool")["spec"]
    container = pool["template"]["spec"]["containers"][0]
    deployment = {
        "name": "second",
        "image": container["image"],
        "image_pull_policy": "Never",
        "node_selector": {POOL: "gpu"},
        "overlap": "always" if pool["updateStrategy"]["rollingUpdate"]["maxSurge"] else "never",
    }
    device = {"id": "zero", "nodes": [{"path": "/dev/zero"}]}
    resource = {"name": "example.com/second", "injection": "device_nodes", "devices": [device]}
    with tempfile.TemporaryDirectory() as directory:
        pathlib.Path(directory, "_default.yaml").write_text(json.dumps({"resources": [resource]}))
        done = subprocess.run(
            [sys.executable, "-m", "node_device_plugin", "manifests", "-o", "json", "--deployment", "-", directory],
            input=json.dumps(deployment),
            env={**os.environ, "PYTHONPATH": str(CHECKOUT / "plugin")},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    objects = json.loads(done.stdout)["items"]
    return [each for each in objects if each["kind"] in ("ConfigMap", "DaemonSet")]


def moves(cluster: Cluster) -> None:
    """Move the node to the other profile, and wait until the other plugin serves there. The workload keeps running.

    Print the duration.
    """
    begin = time.monotonic()
    _label(cluster, NODE, POOL, "other")
    until(lambda: _plugins(cluster), lambda pods: pods == [])
    until(lambda: [_is_ready(pod) for pod in _plugins(cluster, "other")], lambda seen: seen == [True])
    until(lambda: extended(cluster, NODE, "allocatable").get(OTHER), lambda count: count == "1")
    took = time.monotonic() - begin
    print(f"{NODE} in the other profile after {took:.1f} s: {extended(cluster, NODE, 'allocatable')}")
    workload = cluster.ask("GET", f"{PODS}/{POD}")
    assert (workload["status"]["phase"], _restarts(workload)) == ("Running", 0)


def restarted(cluster: Cluster) -> None:
    """Wait until the API server answers. Plugin and workload restarted without it."""
    until(lambda: [_restarts(pod) for pod in _plugins(cluster)], lambda restarts: restarts == [1])
    until(lambda: [_is_ready(pod) for pod in _plugins(cluster)], lambda seen: seen == [True])
    until(lambda: _restarts(cluster.ask("GET", f"{PODS}/{POD}")), lambda restarts: restarts == 1)
    advertises(cluster, NODE, RESOURCE, {RESOURCE: "3"})


def loses_configuration(cluster: Cluster) -> None:
    """Delete the ConfigMap, as a foreign hand does. The running plugins keep what they offer."""
    cluster.ask("DELETE", f"{PLUGINS}/configmaps/pool")


def still_offers(cluster: Cluster) -> None:
    """Check that the plugins without a ConfigMap serve."""
    advertises(cluster, NODE, RESOURCE, {RESOURCE: "3"})
    # The nodes were not Ready while the API server was away, and a kubelet corrects its pods after more than a minute.
    until(
        lambda: [_is_ready(pod) for node in (NODE, NAMED) for pod in _plugins(cluster, node=node)],
        lambda seen: seen == [True, True],
        timeout=240,
    )


def as_declared(cluster: Cluster) -> None:
    """Wait until the node offers what the inventory declares."""
    assert set(cluster.ask("GET", f"{PLUGINS}/configmaps/pool")["data"]) == {"_default", NAMED}
    advertises(cluster, NODE, RESOURCE, {RESOURCE: "2"})


def strays(cluster: Cluster) -> None:
    """Give the node a label that names no DaemonSet, and take the named node out of the pool."""
    _label(cluster, NODE, CHOSEN, "nobody")
    _label(cluster, NAMED, POOL, None)
    until(lambda: [*_plugins(cluster), *_plugins(cluster, node=NAMED)], lambda pods: pods == [])


def returns(cluster: Cluster) -> None:
    """Correct the labels."""
    _label(cluster, NODE, CHOSEN, None)
    _label(cluster, NAMED, POOL, "gpu")
    for node in (NODE, NAMED):
        until(lambda node=node: [_is_ready(pod) for pod in _plugins(cluster, node=node)], lambda seen: seen == [True])


def nothing_left(cluster: Cluster) -> None:
    """Check that the uninstall removed every object of the profile."""
    names = [each["metadata"]["name"] for each in cluster.ask("GET", "/api/v1/namespaces")["items"]]
    until(
        lambda: [each["metadata"]["name"] for each in cluster.ask("GET", "/api/v1/namespaces")["items"]],
        lambda there: "node-devices" not in there,
    )
    print(f"before: {', '.join(names)}")
    for path in (
        f"{ADMISSION}/validatingadmissionpolicies",
        f"{ADMISSION}/validatingadmissionpolicybindings",
        f"{RBAC}/clusterroles",
        f"{RBAC}/clusterrolebindings",
    ):
        there = [each["metadata"]["name"] for each in cluster.ask("GET", path)["items"]]
        assert "pool.node-devices" not in there, path
    assert [_condition(cluster, node) for node in (NODE, NAMED)] == [{}, {}]
    assert _phase(cluster) == "Running"


def _label(cluster: Cluster, node: str, key: str, value: str | None) -> None:
    change = {"metadata": {"labels": {key: value}}}
    cluster.ask("PATCH", f"/api/v1/nodes/{node}", change, MERGE)


def _plugins(cluster: Cluster, name: str = "pool", node: str = NODE) -> list[dict[str, Any]]:
    """Return the pods of a DaemonSet on a node."""
    chosen = f"labelSelector=app.kubernetes.io%2Finstance%3D{name}&fieldSelector=spec.nodeName%3D{node}"
    found: list[dict[str, Any]] = cluster.ask("GET", f"{PLUGINS}/pods?{chosen}")["items"]
    return found


def _runs(pod: dict[str, Any]) -> bool:
    return any("running" in each["state"] for each in pod["status"].get("containerStatuses", ()))


def _restarts(pod: dict[str, Any]) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))


def _is_ready(pod: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod["status"].get("conditions", ()))


def _phase(cluster: Cluster, pod: str = POD) -> str:
    return str(cluster.ask("GET", f"{PODS}/{pod}")["status"]["phase"])


def _condition(cluster: Cluster, node: str) -> dict[str, Any]:
    conditions = cluster.ask("GET", f"/api/v1/nodes/{node}")["status"]["conditions"]
    return next((each for each in conditions if each["type"] == CONDITION), {})


if __name__ == "__main__":
    expect(
        *(
            named,
            waits,
            joins_tainted,
            joins,
            own_node_only,
            device_inside,
            follows,
            second_waits,
            moves,
            restarted,
            loses_configuration,
        ),
        *(still_offers, as_declared, strays, returns, nothing_left),
    )
