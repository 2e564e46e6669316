"""Steps of expect.py for a node with one free pod slot."""

from __future__ import annotations

import json
import os
import pathlib

from cluster_api import PODS, Cluster, until

NODE = "kind-worker2"
#: The pods on the node. One pod holds a device of the plugin.
NAMES = {"held-1": {"github.com.ihcsim/crand": 1}, "plain-1": {}, "plain-2": {}}
CLASS = "/apis/scheduling.k8s.io/v1/priorityclasses"


def fill(cluster: Cluster) -> None:
    """Start the pods on one node. Print the number of the node's unfinished pods."""
    for name, resources in NAMES.items():
        cluster.create(name, resources, NODE)
    for name in NAMES:
        until(lambda name=name: cluster.ask("GET", f"{PODS}/{name}")["status"]["phase"], lambda seen: seen == "Running")
    print(len(_unfinished(cluster)))


def room(cluster: Cluster) -> None:
    """Wait until the node object has one free pod slot. Record the running pods."""
    _await_room(cluster, 1)
    _remembered().write_text(json.dumps(_unfinished(cluster)))


def no_room(cluster: Cluster) -> None:
    """Wait until the node object has no free pod slot."""
    _await_room(cluster, 0)


def unhurt(cluster: Cluster) -> None:
    """Check that the recorded pods run in the same containers, and that no proof pod exists."""
    before, now = json.loads(_remembered().read_text()), _unfinished(cluster)
    assert now == before, f"{now} is not {before}"
    print(f"all {len(now)} pods of {NODE} run on")


def make_room(cluster: Cluster) -> None:
    """Delete the pods of this test."""
    cluster.delete(*NAMES)
    _remembered().unlink()


def class_of_proofs(cluster: Cluster) -> None:
    """Check the priority class of proofs."""
    made = cluster.ask("GET", f"{CLASS}/node-device-proof")
    assert (made["value"], made["preemptionPolicy"]) == (-1_000_000, "Never"), made


def no_class_of_proofs(cluster: Cluster) -> None:
    """Check that the uninstall removed the priority class."""
    names = [each["metadata"]["name"] for each in cluster.ask("GET", CLASS)["items"]]
    assert "node-device-proof" not in names, names


def _await_room(cluster: Cluster, free: int) -> None:
    until(
        lambda: int(cluster.ask("GET", f"/api/v1/nodes/{NODE}")["status"]["allocatable"]["pods"]),
        lambda pods: pods == len(_unfinished(cluster)) + free,
    )


def _remembered() -> pathlib.Path:
    """Return the file with the recorded pods."""
    return pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "full_node.json"


def _unfinished(cluster: Cluster) -> dict[str, list[str]]:
    """Return the ids of the running containers of each unfinished pod on the node, by pod name."""
    pods = cluster.ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}")["items"]
    return {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": sorted(
            each["containerID"] for each in pod["status"].get("containerStatuses", ()) if "running" in each["state"]
        )
        for pod in pods
        if pod["status"]["phase"] not in ("Succeeded", "Failed")
    }


STEPS = (fill, room, no_room, unhurt, make_room, class_of_proofs, no_class_of_proofs)
