"""Checks, through the API, a cluster with faults of its control plane and a kubelet: expect.py KUBECONFIG STEP..."""

from __future__ import annotations

import time
from typing import Any

from cluster_api import PODS, TIMEOUT, Cluster, expect, until

NODE = "faults-worker"
PLUGINS = "/api/v1/namespaces/node-devices"
TOLD = "nodedevices.kubernetes/configuration"


def lose_plugin(cluster: Cluster) -> None:
    """Delete the plugin's pod on one node."""
    for pod in cluster.ask("GET", f"{PLUGINS}/pods")["items"]:
        if pod["spec"].get("nodeName") == NODE:
            cluster.ask("DELETE", f"{PLUGINS}/pods/{pod['metadata']['name']}")


def not_ready(cluster: Cluster) -> None:
    """Wait until the node with the stopped kubelet is not Ready."""
    begin = time.monotonic()
    until(lambda: _readiness(cluster), lambda status: status == "Unknown")
    print(f"{NODE} is not Ready after {time.monotonic() - begin:.1f} s")


def ready(cluster: Cluster) -> None:
    """Wait until the node is Ready."""
    until(lambda: _readiness(cluster), lambda status: status == "True")


def waited_for(cluster: Cluster) -> None:
    """Wait until a play requests a sync of the volumes of the node's plugin pod, and so waits for that pod."""

    def told() -> Any:
        pods = cluster.ask("GET", f"{PLUGINS}/pods?fieldSelector=spec.nodeName%3D{NODE}")["items"]
        return [(pod["metadata"].get("annotations") or {}).get(TOLD) for pod in pods]

    before = told()
    until(told, lambda now: now != before)


def answers_again(cluster: Cluster) -> None:
    """Wait until the stopped API server answers again."""
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
