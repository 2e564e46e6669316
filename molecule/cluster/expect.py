"""What the cluster must show, through its API: expect.py KUBECONFIG STEP...

The three pods of the imaginary devices, pods with a fixed capacity, and what node objects advertise. Ends with 1 and a
sentence where something is not so within a minute. Python and PyYAML are all it needs.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import full_node_steps
import plugin_steps
from cluster_api import PODS, WORKERS, Cluster, until

ANNOTATION = "nodedevices.kubernetes/extended-resources"
LABEL = "nodedevices.kubernetes/device-plugin"
IMAGINARY = "myplugin.io/mydevice-"


def extended(cluster: Cluster, node: str, part: str) -> dict[str, str]:
    """The extended resources of a node object."""
    return {
        name: value
        for name, value in cluster.ask("GET", f"/api/v1/nodes/{node}")["status"][part].items()
        if "/" in name
    }


def advertises(cluster: Cluster, node: str, prefix: str, wanted: dict[str, str]) -> None:
    """A node object has just these of the resources that begin so, in capacity and allocatable, as text."""
    for part in ("capacity", "allocatable"):

        def look(part: str = part) -> dict[str, str]:
            return {name: value for name, value in extended(cluster, node, part).items() if name.startswith(prefix)}

        until(look, lambda seen: seen == wanted)
    print(f"{node} advertises {wanted}")


def runs(cluster: Cluster, name: str, node: str, log: list[str]) -> None:
    """A pod runs on a node and has printed its variables."""

    def look() -> tuple[str, str]:
        pod = cluster.ask("GET", f"{PODS}/{name}")
        return pod["status"]["phase"], pod["spec"].get("nodeName", "")

    until(look, lambda seen: seen == ("Running", node))
    text = "\n".join(["Device vars:", *log, ""])
    until(lambda: cluster.ask("GET", f"{PODS}/{name}/log"), lambda seen: seen == text)
    print(f"{name} runs on {node}: {' '.join(log)}")


def is_pending(cluster: Cluster, name: str, words: set[str]) -> None:
    """The scheduler has said why a pod fits nowhere; words: its counts, in whatever order."""

    def look() -> str:
        conditions = cluster.ask("GET", f"{PODS}/{name}")["status"].get("conditions", ())
        return next(
            (item["message"] for item in conditions if item["type"] == "PodScheduled" and "message" in item), ""
        )

    def said(message: str) -> str:
        # What follows is about preemption.
        return message.split(". ")[0]

    def counts(message: str) -> tuple[str, set[str]]:
        head, _, rest = said(message).partition(": ")
        return head, set(rest.split(", "))

    # A node that is Ready again keeps its taint for a moment, after which the scheduler looks again.
    message = until(look, lambda message: counts(message) == ("0/3 nodes are available", words))
    print(f"{name} is Pending: {said(message)}")


def system_a(cluster: Cluster) -> None:
    """The imaginary devices: what nodes advertise, where pods land, what they print, what waits for what."""
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
    is_pending(cluster, "dp1-3", words)
    cluster.delete("dp1-2")
    pod = f"{PODS}/dp1-3"
    until(lambda: cluster.ask("GET", pod)["status"]["phase"], lambda phase: phase == "Running")
    log = until(lambda: cluster.ask("GET", f"{pod}/log").splitlines(), lambda lines: len(lines) == 4)
    runs(cluster, "dp1-3", "kind-worker2", log[1:])
    values = [line.partition("=")[2] for line in log[1:]]
    assert [line.partition("=")[0] for line in log[1:]] == ["DEV_2_ID_0", "DEV_3_ID_0", "DEV_3_ID_1"], log
    # Which two of three the kubelet takes is its own choice; the numbers follow the declaration's order.
    assert values[0] == "'/node2/dev2/1'", log
    assert values[1] < values[2], log
    assert set(values[1:]) < {f"'/node2/dev3/{number}'" for number in (1, 2, 3)}, log


def static(cluster: Cluster) -> None:
    """A fixed capacity: on one node, schedulable, and used up."""
    advertises(cluster, "kind-worker", "example.com/", {"example.com/dongle": "4", "example.com/hundreds": "23k"})
    advertises(cluster, "kind-worker2", "example.com/", {})
    cluster.create("dongle-1", {"example.com/dongle": 3})
    runs(cluster, "dongle-1", "kind-worker", [])
    cluster.create("dongle-2", {"example.com/dongle": 2})
    words = {"2 Insufficient example.com/dongle", "1 node(s) had untolerated taint(s)"}
    is_pending(cluster, "dongle-2", words)


def reset(cluster: Cluster) -> None:
    """What a kubelet does to extended resources that it does not know when it starts."""
    for part in ("capacity", "allocatable"):
        operation = {"op": "add", "path": f"/status/{part}/example.com~1dongle", "value": "0"}
        path = "/api/v1/nodes/kind-worker/status?fieldManager=kubelet"
        cluster.ask("PATCH", path, [operation], "application/json-patch+json")


def restored(cluster: Cluster) -> None:
    """Nobody ran anything: the node itself has put back what was reset."""
    begin = time.monotonic()
    advertises(cluster, "kind-worker", "example.com/", {"example.com/dongle": "4", "example.com/hundreds": "23k"})
    print(f"restored and allocatable within {time.monotonic() - begin:.1f} s")


def no_pods(cluster: Cluster) -> None:
    """None is left that holds a device."""
    pods = (pod["metadata"] for pod in cluster.ask("GET", PODS)["items"])
    cluster.delete(*(pod["name"] for pod in pods if pod.get("ownerReferences") is None))


def nothing_left(cluster: Cluster) -> None:
    """Node objects show nothing of ours, and keep it so for longer than a kubelet's period."""
    for node in WORKERS:
        advertises(cluster, node, "", {})
        metadata = cluster.ask("GET", f"/api/v1/nodes/{node}")["metadata"]
        assert ANNOTATION not in metadata["annotations"]
        assert LABEL not in metadata["labels"]
    namespaces = "/api/v1/namespaces"
    until(
        lambda: [each["metadata"]["name"] for each in cluster.ask("GET", namespaces)["items"]],
        lambda names: "node-devices" not in names,
    )
    before = heartbeats(cluster)
    until(lambda: heartbeats(cluster), lambda now: all(now[node] > before[node] for node in before))
    for node in WORKERS:
        assert extended(cluster, node, "capacity") == {}, "the kubelet wrote it again"


def system_b(cluster: Cluster, name: str, resource: str, ids: set[str], count: int) -> None:
    """A static pod runs on each worker, and its status says which devices it has and that they are healthy."""
    for node in WORKERS:

        def look(node: str = node) -> Any:
            container = cluster.ask("GET", f"{PODS}/{name}-{node}")["status"]["containerStatuses"][0]
            return {each["name"]: each["resources"] for each in container.get("allocatedResourcesStatus", ())}

        seen = until(look, bool)
        assert set(seen) == {resource}, seen
        held = {each["resourceID"] for each in seen[resource]}
        assert len(held) == len(seen[resource]) == count, seen
        assert held <= ids, seen
        assert {each["health"] for each in seen[resource]} == {"Healthy"}, seen
        print(f"{name}-{node}: allocatedResourcesStatus has {sorted(held)} of {resource}, Healthy")


def system_b_crand(cluster: Cluster) -> None:
    """Two of three devices."""
    system_b(cluster, "busybox-crand", "github.com.ihcsim/crand", {"crand0", "crand1", "crand2"}, 2)


def system_b_kvm(cluster: Cluster) -> None:
    """One of the eight shares of one device."""
    system_b(cluster, "busybox-kvm", "github.com.ihcsim/kvm", {f"kvm0::{share}" for share in range(8)}, 1)


def follows(cluster: Cluster) -> None:
    """Node objects show the other configuration; prints how long that took after PodResources did."""
    begin = time.monotonic()
    for node in WORKERS:
        advertises(cluster, node, IMAGINARY, {f"{IMAGINARY}1": "1", f"{IMAGINARY}2": "0", f"{IMAGINARY}3": "0"})
    print(f"the node objects followed within {time.monotonic() - begin:.1f} s")


def heartbeats(cluster: Cluster) -> dict[str, str]:
    """When each kubelet last renewed its lease, which it does as often as it looks at its node."""
    leases = cluster.ask("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases")["items"]
    return {lease["metadata"]["name"]: lease["spec"]["renewTime"] for lease in leases}


STEPS = {
    step.__name__.replace("_", "-"): step
    for step in (
        system_a,
        static,
        reset,
        system_b_crand,
        system_b_kvm,
        restored,
        no_pods,
        follows,
        nothing_left,
        *plugin_steps.STEPS,
        *full_node_steps.STEPS,
    )
}

if __name__ == "__main__":
    api = Cluster(sys.argv[1])
    for step in sys.argv[2:]:
        try:
            STEPS[step](api)
        except AssertionError as error:
            sys.exit(f"{step}: {error}")
