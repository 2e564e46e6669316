"""Steps of expect.py: the plugin's pods, what their kubelets measured, and a control plane that has trouble."""

from __future__ import annotations

import json
import time
from typing import Any

from cluster_api import PODS, TIMEOUT, WORKERS, Cluster, until

PLUGINS = "/api/v1/namespaces/node-devices"
DAEMON_SETS = "/apis/apps/v1/namespaces/node-devices/daemonsets"
TOLD = "nodedevices.kubernetes/configuration"


def lose_plugin(cluster: Cluster) -> None:
    """The plugin's pod of one node is deleted."""
    for pod in cluster.ask("GET", f"{PLUGINS}/pods")["items"]:
        if pod["spec"].get("nodeName") == "kind-worker2":
            cluster.ask("DELETE", f"{PLUGINS}/pods/{pod['metadata']['name']}")


def no_restarts(cluster: Cluster) -> None:
    """The plugin's containers are the ones that were started first."""
    pods = cluster.ask("GET", f"{PLUGINS}/pods")["items"]
    restarts = {pod["spec"]["nodeName"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}
    assert restarts == {"kind-worker": 0, "kind-worker2": 0}, restarts
    print(f"no container of the plugin was restarted: {restarts}")


def other_inventory(cluster: Cluster) -> None:
    """A node of another inventory has a configuration, too: what the first worker's is."""
    config_map = f"{PLUGINS}/configmaps/node-device-plugin"
    text = cluster.ask("GET", config_map)["data"][WORKERS[0]]
    cluster.ask("PATCH", config_map, {"data": {"elsewhere": text}}, "application/merge-patch+json")


def other_inventory_kept(cluster: Cluster) -> None:
    """It stays."""
    assert _configured(cluster) == [*WORKERS, "elsewhere"], _configured(cluster)


def other_inventory_pruned(cluster: Cluster) -> None:
    """It is gone, and nothing else is."""
    assert _configured(cluster) == [*WORKERS], _configured(cluster)


def _configured(cluster: Cluster) -> list[str]:
    names = cluster.ask("GET", f"{PLUGINS}/configmaps/node-device-plugin")["data"]
    return [*(name for name in WORKERS if name in names), *sorted(set(names) - set(WORKERS))]


def held_run_on(cluster: Cluster) -> None:
    """Every pod that holds a device runs, and none of its containers was restarted."""
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
    """Nothing but the plugin's pods is in its namespace."""
    names = [pod["metadata"]["name"] for pod in cluster.ask("GET", f"{PLUGINS}/pods")["items"]]
    assert len(names) == len(WORKERS), names
    assert all(name.startswith("node-device-plugin-") for name in names), names


def pod_template(cluster: Cluster) -> None:
    """Prints what the DaemonSet's pods must be: JSON, and nothing else."""
    (daemon_set,) = cluster.ask("GET", DAEMON_SETS)["items"]
    print(json.dumps(daemon_set["spec"]["template"]))


def new_plugins(cluster: Cluster) -> None:
    """The plugin's pods are deleted, and others are ready in their place."""

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
    """Prints since when each of the plugin's pods is Ready, and how often its container was restarted."""
    for pod in sorted(cluster.ask("GET", f"{PLUGINS}/pods")["items"], key=lambda pod: pod["spec"]["nodeName"]):
        (ready,) = [each for each in pod["status"]["conditions"] if each["type"] == "Ready"]
        restarts = pod["status"]["containerStatuses"][0]["restartCount"]
        print(pod["spec"]["nodeName"], ready["status"], ready["lastTransitionTime"], restarts)


def figures(cluster: Cluster) -> None:
    """What each kubelet measured; the period after which its node object follows. Prints, and holds nothing to it."""
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


def not_ready(cluster: Cluster) -> None:
    """The cluster has noticed that a node's kubelet is silent."""
    begin = time.monotonic()
    until(lambda: _readiness(cluster), lambda status: status == "Unknown")
    print(f"kind-worker2 is not Ready after {time.monotonic() - begin:.1f} s")


def ready(cluster: Cluster) -> None:
    """And that it is not any more."""
    until(lambda: _readiness(cluster), lambda status: status == "True")


def waited_for(cluster: Cluster) -> None:
    """A play waits for the plugin's pod of kind-worker2: it has told the kubelet to look at the pod's volumes."""

    def told() -> Any:
        pods = cluster.ask("GET", f"{PLUGINS}/pods?fieldSelector=spec.nodeName%3Dkind-worker2")["items"]
        return [(pod["metadata"].get("annotations") or {}).get(TOLD) for pod in pods]

    before = told()
    until(told, lambda now: now != before)


def answers_again(cluster: Cluster) -> None:
    """The API server that was away is back."""
    begin, failures = time.monotonic(), 0
    while True:
        try:
            if cluster.ask("GET", PODS)["items"] is not None:
                break
        except OSError:
            failures += 1
        assert time.monotonic() < begin + TIMEOUT, f"it does not answer after {TIMEOUT} s"
        time.sleep(0.1)
    assert failures, "it was never away"
    print(f"the API server was away for {time.monotonic() - begin:.1f} s")


def _readiness(cluster: Cluster) -> str:
    conditions = cluster.ask("GET", "/api/v1/nodes/kind-worker2")["status"]["conditions"]
    return next(str(each["status"]) for each in conditions if each["type"] == "Ready")


STEPS = (
    lose_plugin,
    no_restarts,
    other_inventory,
    other_inventory_kept,
    other_inventory_pruned,
    no_proofs,
    pod_template,
    held_run_on,
    new_plugins,
    ready_since,
    figures,
    not_ready,
    ready,
    waited_for,
    answers_again,
)
