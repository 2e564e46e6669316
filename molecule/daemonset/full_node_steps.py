"""Steps of expect.py: a node with room for one more pod, and what runs there."""

from __future__ import annotations

import json
import os
import pathlib

from cluster_api import PODS, Cluster, until

NODE = "kind-worker2"
#: Who runs there: one holds a device of the plugin, the others nothing.
NAMES = {"held-1": {"github.com.ihcsim/crand": 1}, "plain-1": {}, "plain-2": {}}
CLASS = "/apis/scheduling.k8s.io/v1/priorityclasses"


def fill(cluster: Cluster) -> None:
    """Pods run on one node; prints how many unfinished ones it has then."""
    for name, resources in NAMES.items():
        cluster.create(name, resources, NODE)
    for name in NAMES:
        until(lambda name=name: cluster.ask("GET", f"{PODS}/{name}")["status"]["phase"], lambda seen: seen == "Running")
    print(len(_unfinished(cluster)))


def room(cluster: Cluster) -> None:
    """The scheduler knows that one pod fits; who runs is remembered."""
    _await_room(cluster, 1)
    _remembered().write_text(json.dumps(_unfinished(cluster)))


def no_room(cluster: Cluster) -> None:
    """The scheduler knows that none fits."""
    _await_room(cluster, 0)


def unhurt(cluster: Cluster) -> None:
    """Every pod runs that ran, in the same containers, and no proof is left."""
    before, now = json.loads(_remembered().read_text()), _unfinished(cluster)
    assert now == before, f"{now} is not {before}"
    print(f"all {len(now)} pods of {NODE} run on")


def make_room(cluster: Cluster) -> None:
    """The pods of this test go."""
    cluster.delete(*NAMES)
    _remembered().unlink()


def class_of_proofs(cluster: Cluster) -> None:
    """It is there, and as the API server keeps it."""
    made = cluster.ask("GET", f"{CLASS}/node-device-proof")
    assert (made["value"], made["preemptionPolicy"]) == (-1_000_000, "Never"), made


def no_class_of_proofs(cluster: Cluster) -> None:
    """It has gone with the uninstall."""
    names = [each["metadata"]["name"] for each in cluster.ask("GET", CLASS)["items"]]
    assert "node-device-proof" not in names, names


def _await_room(cluster: Cluster, free: int) -> None:
    until(
        lambda: int(cluster.ask("GET", f"/api/v1/nodes/{NODE}")["status"]["allocatable"]["pods"]),
        lambda pods: pods == len(_unfinished(cluster)) + free,
    )


def _remembered() -> pathlib.Path:
    """Where one step tells the next."""
    return pathlib.Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / "full_node.json"


def _unfinished(cluster: Cluster) -> dict[str, list[str]]:
    """Pods of the node by name, each with the ids of its running containers."""
    pods = cluster.ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}")["items"]
    return {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": sorted(
            each["containerID"] for each in pod["status"].get("containerStatuses", ()) if "running" in each["state"]
        )
        for pod in pods
        if pod["status"]["phase"] not in ("Succeeded", "Failed")
    }


STEPS = (fill, room, no_room, unhurt, make_room, class_of_proofs, no_class_of_proofs)
