"""Starts and ends the workloads of the operator's day: workloads.py KUBECONFIG ACTION...

An action is a function below with its arguments, such as 'run disk-a day.example/disk=1'. Each action waits for its
result, and exits with 1 and a sentence after a minute. The pods have no controller, so no ended pod comes back.
watch.py reads the requested changes of the pods from their annotations.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

from cluster_api import PODS, Cluster, until

NODE = "day-worker"
LABEL = "operator-day/workload"
#: Annotations of a pod: a requested end, and the requested number of restarts.
ENDS, RESTARTS = "operator-day/ends", "operator-day/restarts"
#: Of the scheduler's. Below it there are only our proofs.
PRIORITY_CLASS = "operator-day-cheap"
OURS = "day.example/"
#: Prints the device nodes that only our plugin adds to a container.
SCRIPT = """
for node in /dev/day[0-9]* /dev/lamp[0-9]*; do
  [ ! -e "$node" ] || { head -c 1 "$node" >/dev/null && echo "sees ${node#/dev/}"; }
done
echo end
trap exit TERM
sleep 100000 & wait
"""


def devices_of(pod: dict[str, Any]) -> int:
    """Return how many devices a pod requests."""
    limits = [each["resources"].get("limits", {}) for each in pod["spec"]["containers"]]
    return sum(int(count) for each in limits for name, count in each.items() if name.startswith(OURS))


def pods(cluster: Cluster) -> dict[str, Any]:
    """Return the pods by name."""
    return {pod["metadata"]["name"]: pod for pod in cluster.ask("GET", f"{PODS}?labelSelector={LABEL}")["items"]}


def annotate(cluster: Cluster, name: str, key: str, value: str) -> None:
    content = {"metadata": {"annotations": {key: value}}}
    cluster.ask("PATCH", f"{PODS}/{name}", content, "application/merge-patch+json")


def cheap(cluster: Cluster, name: str) -> None:
    """Start a pod with a low priority, which most other pods may preempt."""
    content = {"metadata": {"name": PRIORITY_CLASS}, "value": -1000, "description": "Gives way to any other pod"}
    cluster.ask("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", content)
    create(cluster, name, priority=PRIORITY_CLASS)
    runs(cluster, name)


def create(cluster: Cluster, name: str, *wanted: str, priority: str = "") -> None:
    """Create a pod. wanted: RESOURCE=COUNT."""
    container = {
        "name": "main",
        "image": "localhost/node-devices/busybox:lab",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", SCRIPT],
        "resources": {"limits": dict(each.split("=") for each in wanted)},
    }
    spec = {
        "containers": [container],
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "hostNetwork": True,
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
    }
    if priority:
        spec["priorityClassName"] = priority
    content = {"metadata": {"name": name, "labels": {LABEL: ""}}, "spec": spec}
    # Retry, because a new cluster has no service account yet.
    until(lambda: cluster.ask("POST", PODS, content), bool)


def run(cluster: Cluster, name: str, *wanted: str) -> None:
    """Create a pod, and wait until it runs."""
    create(cluster, name, *wanted)
    runs(cluster, name)


def runs(cluster: Cluster, *names: str) -> None:
    """Wait until pods run."""
    until(
        lambda: {name: pod["status"] for name, pod in pods(cluster).items() if name in names},
        lambda seen: [each["phase"] for each in seen.values()] == ["Running"] * len(names),
    )
    print(f"{', '.join(names)}: running")


def waits(cluster: Cluster, name: str, resource: str) -> None:
    """Wait until the scheduler reports that a pod's resource is insufficient."""

    def said() -> str:
        conditions = cluster.ask("GET", f"{PODS}/{name}")["status"].get("conditions", ())
        return next((each.get("message", "") for each in conditions if each["type"] == "PodScheduled"), "")

    message = until(said, lambda text: f"Insufficient {resource}" in text)
    print(f"{name} is Pending: {message}")


def end(cluster: Cluster, *names: str) -> None:
    """Delete pods, as a user does."""
    for name in names:
        annotate(cluster, name, ENDS, "")
        cluster.ask("DELETE", f"{PODS}/{name}")
    until(lambda: sorted(pods(cluster)), lambda there: not set(names) & set(there))
    print(f"{', '.join(names)}: ended")


def fill(cluster: Cluster, free: str) -> None:
    """Create pods until the node has only this number of free pod slots."""

    def room() -> int:
        node = cluster.ask("GET", f"/api/v1/nodes/{NODE}")
        there = cluster.ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{NODE}")["items"]
        unfinished = [pod for pod in there if pod["status"]["phase"] not in ("Failed", "Succeeded")]
        return int(node["status"]["allocatable"]["pods"]) - len(unfinished)

    names = [f"filler-{number}" for number in range(room() - int(free))]
    for name in names:
        create(cluster, name)
    runs(cluster, *names)
    assert room() == int(free), f"the node has room for {room()} more pods"
    print(f"the node has room for {free} more")


def offers(cluster: Cluster, resource: str, capacity: str, allocatable: str) -> None:
    """Wait until the node object has this quantity of a resource."""

    def seen() -> dict[str, str]:
        status = cluster.ask("GET", f"/api/v1/nodes/{NODE}")["status"]
        return {part: status[part].get(resource, "none") for part in ("capacity", "allocatable")}

    until(seen, lambda now: now == {"capacity": capacity, "allocatable": allocatable})
    print(f"{resource}: capacity {capacity}, allocatable {allocatable}")


def to_restart(cluster: Cluster, times: str, *names: str) -> None:
    """Set the requested number of restarts of all or some workloads."""
    for name in names or pods(cluster):
        annotate(cluster, name, RESTARTS, times)


def restarted(cluster: Cluster, times: str, *names: str) -> None:
    """Wait until all or some workloads run after this number of restarts."""

    def look() -> dict[str, Any]:
        return {
            name: [(each["restartCount"], each["ready"]) for each in pod["status"].get("containerStatuses", ())]
            or pod["status"]["phase"]
            for name, pod in pods(cluster).items()
            if name in names or not names
        }

    seen = until(look, lambda now: all(each == [(int(times), True)] for each in now.values()))
    print(f"{', '.join(sorted(seen))}: running after {times} restarts")


ACTIONS = (cheap, end, fill, offers, restarted, run, create, runs, to_restart, waits)

if __name__ == "__main__":
    api = Cluster(sys.argv[1])
    for line in sys.argv[2:]:
        action, *arguments = line.split()
        try:
            {each.__name__: each for each in ACTIONS}[action](api, *arguments)
        except AssertionError as failure:
            sys.exit(f"{line}: {failure}")
