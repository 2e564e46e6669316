"""A control plane and a kubelet that have trouble, as the API shows it: expect.py KUBECONFIG STEP..."""

from __future__ import annotations

import time
from typing import Any

from cluster_api import PODS, TIMEOUT, Cluster, expect, until

NODE = "faults-worker"
PLUGINS = "/api/v1/namespaces/node-devices"
TOLD = "nodedevices.kubernetes/configuration"


def lose_plugin(cluster: Cluster) -> None:
    """The plugin's pod of one node is deleted."""
    for pod in cluster.ask("GET", f"{PLUGINS}/pods")["items"]:
        if pod["spec"].get("nodeName") == NODE:
            cluster.ask("DELETE", f"{PLUGINS}/pods/{pod['metadata']['name']}")


def not_ready(cluster: Cluster) -> None:
    """The cluster has noticed that a node's kubelet is silent."""
    begin = time.monotonic()
    until(lambda: _readiness(cluster), lambda status: status == "Unknown")
    print(f"{NODE} is not Ready after {time.monotonic() - begin:.1f} s")


def ready(cluster: Cluster) -> None:
    """And that it is not any more."""
    until(lambda: _readiness(cluster), lambda status: status == "True")


def waited_for(cluster: Cluster) -> None:
    """A play waits for the plugin's pod of that node: it has told the kubelet to look at the pod's volumes."""

    def told() -> Any:
        pods = cluster.ask("GET", f"{PLUGINS}/pods?fieldSelector=spec.nodeName%3D{NODE}")["items"]
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
    conditions = cluster.ask("GET", f"/api/v1/nodes/{NODE}")["status"]["conditions"]
    return next(str(each["status"]) for each in conditions if each["type"] == "Ready")


if __name__ == "__main__":
    expect(lose_plugin, not_ready, ready, waited_for, answers_again)
