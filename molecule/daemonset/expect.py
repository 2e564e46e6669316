"""Checks a cluster through its API: expect.py KUBECONFIG STEP...

The steps check the pods of the imaginary devices, the node objects, the plugin's pods and the kubelets' metrics.
"""

from __future__ import annotations

import json
import time

import full_node_steps
from cluster_api import PODS, Cluster, advertises, expect, extended, is_pending, no_pods, runs, until

WORKERS = ("kind-worker", "kind-worker2")
LABEL = "nodedevices.kubernetes/device-plugin"
IMAGINARY = "myplugin.io/mydevice-"
PLUGINS = "/api/v1/namespaces/node-devices"
DAEMON_SETS = "/apis/apps/v1/namespaces/node-devices/daemonsets"


def system_a(cluster: Cluster) -> None:
    """Check the imaginary devices: the nodes' resources, the pods' nodes and output, and a pod that waits."""
    for node, counts in (("kind-worker", "100"), ("kind-worker2", "013")):
        wanted = {f"{IMAGINARY}{number}": count for number, count in enumerate(counts, 1)}
        advertises(cluster, node, IMAGINARY, wanted)
    cluster.create("dp1-1", {f"{IMAGINARY}1": 1})
    cluster.create("dp1-2", {f"{IMAGINARY}2": 1})
    runs(cluster, "dp1-1", "kind-worker", ["DEV_1_ID_0='/node1/dev1/1'"])
    runs(cluster, "dp1-2", "kind-worker2", ["DEV_2_ID_0='/node2/dev2/1'"])
    cluster.create("dp1-3", {f"{IMAGINARY}2": 1, f"{IMAGINARY}3": 2})
    words = {
        f"1 Insufficient {IMAGINARY}3",
        f"2 Insufficient {IMAGINARY}2",
        "1 node(s) had untolerated taint(s)",
    }
    is_pending(cluster, "dp1-3", 3, words)
    cluster.delete("dp1-2")
    pod = f"{PODS}/dp1-3"
    until(lambda: cluster.ask("GET", pod)["status"]["phase"], lambda phase: phase == "Running")
    log = until(lambda: cluster.ask("GET", f"{pod}/log").splitlines(), lambda lines: len(lines) == 4)
    runs(cluster, "dp1-3", "kind-worker2", log[1:])
    values = [line.partition("=")[2] for line in log[1:]]
    assert [line.partition("=")[0] for line in log[1:]] == ["DEV_2_ID_0", "DEV_3_ID_0", "DEV_3_ID_1"], log
    # The kubelet chooses any two of the three devices. The variables' numbers follow the declaration's order.
    assert values[0] == "'/node2/dev2/1'", log
    assert values[1] < values[2], log
    assert set(values[1:]) < {f"'/node2/dev3/{number}'" for number in (1, 2, 3)}, log


def follows(cluster: Cluster) -> None:
    """Wait until the node objects show the new configuration. Print the duration."""
    begin = time.monotonic()
    for node in WORKERS:
        advertises(cluster, node, IMAGINARY, {f"{IMAGINARY}1": "1", f"{IMAGINARY}2": "0", f"{IMAGINARY}3": "0"})
    print(f"the node objects followed within {time.monotonic() - begin:.1f} s")


def no_restarts(cluster: Cluster) -> None:
    """Check that no container of the plugin was restarted."""
    pods = cluster.ask("GET", f"{PLUGINS}/pods")["items"]
    restarts = {pod["spec"]["nodeName"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}
    assert restarts == {"kind-worker": 0, "kind-worker2": 0}, restarts
    print(f"no container of the plugin was restarted: {restarts}")


def other_inventory(cluster: Cluster) -> None:
    """Add a configuration for a node of another inventory, a copy of the first worker's."""
    config_map = f"{PLUGINS}/configmaps/node-device-plugin"
    text = cluster.ask("GET", config_map)["data"][WORKERS[0]]
    cluster.ask("PATCH", config_map, {"data": {"elsewhere": text}}, "application/merge-patch+json")


def other_inventory_kept(cluster: Cluster) -> None:
    """Check that the other inventory's node keeps its configuration."""
    assert _configured(cluster) == [*WORKERS, "elsewhere"], _configured(cluster)


def other_inventory_pruned(cluster: Cluster) -> None:
    """Check that only the other inventory's node has lost its configuration."""
    assert _configured(cluster) == [*WORKERS], _configured(cluster)


def _configured(cluster: Cluster) -> list[str]:
    names = cluster.ask("GET", f"{PLUGINS}/configmaps/node-device-plugin")["data"]
    return [*(name for name in WORKERS if name in names), *sorted(set(names) - set(WORKERS))]


def held_run_on(cluster: Cluster) -> None:
    """Check that each pod that holds a device runs and was not restarted."""
    holders = [
        pod
        for pod in cluster.ask("GET", PODS)["items"]
        if any("/" in name for each in pod["spec"]["containers"] for name in each["resources"].get("limits", ()))
        and pod["spec"].get("nodeName")
    ]
    seen = {
        pod["metadata"]["name"]: (pod["status"]["phase"], pod["status"]["containerStatuses"][0]["restartCount"])
        for pod in holders
    }
    assert seen, "no pod holds a device"
    assert set(seen.values()) == {("Running", 0)}, seen
    print(f"these run on: {', '.join(sorted(seen))}")


def no_proofs(cluster: Cluster) -> None:
    """Check that the plugin's namespace has only the plugin's pods."""
    names = [pod["metadata"]["name"] for pod in cluster.ask("GET", f"{PLUGINS}/pods")["items"]]
    assert len(names) == len(WORKERS), names
    assert all(name.startswith("node-device-plugin-") for name in names), names


def waits_for_service(cluster: Cluster) -> None:
    """Label a node of the service for the DaemonSet, which no play does. The pod serves nothing, and says why."""
    node = WORKERS[1]
    before = extended(cluster, node, "allocatable")
    config_map = f"{PLUGINS}/configmaps/node-device-plugin"
    text = cluster.ask("GET", config_map)["data"][WORKERS[0]]
    cluster.ask("PATCH", config_map, {"data": {node: text}}, "application/merge-patch+json")
    _label(cluster, node, "node-device-plugin")
    pods = f"{PLUGINS}/pods?fieldSelector=spec.nodeName%3D{node}"
    (pod,) = until(lambda: cluster.ask("GET", pods)["items"], bool)
    events = f"{PLUGINS}/events?fieldSelector=involvedObject.name%3D{pod['metadata']['name']}%2Creason%3DUnhealthy"
    until(
        lambda: [each["message"] for each in cluster.ask("GET", events)["items"]],
        lambda seen: any("node-device-plugin.service serves this node's devices" in text for text in seen),
    )
    (pod,) = cluster.ask("GET", pods)["items"]
    (status,) = pod["status"]["containerStatuses"]
    assert (status["ready"], status["restartCount"]) == (False, 0), status
    assert extended(cluster, node, "allocatable") == before
    _label(cluster, node, None)
    until(lambda: cluster.ask("GET", pods)["items"], lambda pods: pods == [])
    cluster.ask("PATCH", config_map, {"data": {node: None}}, "application/merge-patch+json")
    assert extended(cluster, node, "allocatable") == before


def _label(cluster: Cluster, node: str, value: str | None) -> None:
    change = {"metadata": {"labels": {LABEL: value}}}
    cluster.ask("PATCH", f"/api/v1/nodes/{node}", change, "application/merge-patch+json")


def pod_template(cluster: Cluster) -> None:
    """Print the DaemonSet's pod template as JSON."""
    (daemon_set,) = cluster.ask("GET", DAEMON_SETS)["items"]
    print(json.dumps(daemon_set["spec"]["template"]))


def new_plugins(cluster: Cluster) -> None:
    """Delete the plugin's pods, and wait until new pods are ready."""

    def ready() -> dict[str, str]:
        return {
            pod["metadata"]["uid"]: pod["spec"].get("nodeName", "")
            for pod in cluster.ask("GET", f"{PLUGINS}/pods")["items"]
            if any(each["ready"] for each in pod["status"].get("containerStatuses", ()))
        }

    before = ready()
    for pod in cluster.ask("GET", f"{PLUGINS}/pods")["items"]:
        cluster.ask("DELETE", f"{PLUGINS}/pods/{pod['metadata']['name']}")
    until(ready, lambda now: sorted(now.values()) == sorted(before.values()) and not set(now) & set(before))


def ready_since(cluster: Cluster) -> None:
    """Print the time since which each of the plugin's pods is Ready, and its number of restarts."""
    for pod in sorted(cluster.ask("GET", f"{PLUGINS}/pods")["items"], key=lambda pod: pod["spec"]["nodeName"]):
        (ready,) = [each for each in pod["status"]["conditions"] if each["type"] == "Ready"]
        restarts = pod["status"]["containerStatuses"][0]["restartCount"]
        print(pod["spec"]["nodeName"], ready["status"], ready["lastTransitionTime"], restarts)


def figures(cluster: Cluster) -> None:
    """Print each kubelet's Allocate durations, and the update period of its node object."""
    for node in WORKERS:
        proxy = f"/api/v1/nodes/{node}/proxy"
        period = cluster.ask("GET", f"{proxy}/configz")["kubeletconfig"]["nodeStatusUpdateFrequency"]
        below, count, seconds = 0, 0, 0.0
        for line in cluster.ask("GET", f"{proxy}/metrics", kind="text/plain").splitlines():
            if line.startswith("kubelet_device_plugin_alloc_duration_seconds_bucket") and 'le="0.005"' in line:
                below += int(float(line.split()[-1]))
            if line.startswith("kubelet_device_plugin_alloc_duration_seconds_count"):
                count += int(float(line.split()[-1]))
            if line.startswith("kubelet_device_plugin_alloc_duration_seconds_sum"):
                seconds += float(line.split()[-1])
        assert count, "no Allocate was counted"
        print(
            f"{node}: Allocate took less than 5 ms {below} times of {count}, on average {seconds / count * 1e3:.1f} ms"
        )
        print(f"{node}: its node object follows every {period}")


def nothing_left(cluster: Cluster) -> None:
    """Check that the cluster has neither our label nor our namespace."""
    for node in WORKERS:
        assert LABEL not in cluster.ask("GET", f"/api/v1/nodes/{node}")["metadata"]["labels"]
    until(
        lambda: [each["metadata"]["name"] for each in cluster.ask("GET", "/api/v1/namespaces")["items"]],
        lambda names: "node-devices" not in names,
    )


if __name__ == "__main__":
    expect(
        system_a,
        follows,
        no_restarts,
        other_inventory,
        other_inventory_kept,
        other_inventory_pruned,
        held_run_on,
        no_proofs,
        waits_for_service,
        pod_template,
        new_plugins,
        ready_since,
        figures,
        no_pods,
        nothing_left,
        *full_node_steps.STEPS,
    )
