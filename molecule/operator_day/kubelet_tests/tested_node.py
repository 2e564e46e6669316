"""The node on which the kubelet's own tests run: its API, its kubelet and its pods."""

from __future__ import annotations

import json
import pathlib
import subprocess
from typing import Any

from cluster_api import TIMEOUT, Cluster, until

ENGINE = pathlib.Path(__file__).resolve().parents[3] / "lab/roles/lab_node/files/engine"
NODE = "day-control-plane"
NAMESPACE = "/api/v1/namespaces/kubelet-tests"
PODS = f"{NAMESPACE}/pods"
#: Two devices with device nodes.
RESOURCE = "kubelet.example/test"
IMAGE = "localhost/node-devices/busybox:lab"
#: Prints its variables, such as TEST_0=test1, and stays. If it is killed, it starts again.
STAYS = "set | grep -E '^[A-Z]+_[0-9]='; echo end; trap exit TERM; sleep 100000 & wait"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"


class TestedNode:
    """All that a test needs. Each wait ends after a minute with AssertionError, unless it says otherwise."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def sh(self, script: str, stdin: str = "") -> str:
        """What a script of the node prints. Raises AssertionError where it fails."""
        done = subprocess.run(
            [ENGINE, "exec", "--interactive", NODE, "sh", "-euc", script],
            input=stdin,
            text=True,
            capture_output=True,
            timeout=2 * TIMEOUT,
            check=False,
        )
        assert not done.returncode, f"{script}: {done.stdout}{done.stderr}"
        return done.stdout

    def status(self, resource: str) -> tuple[str, str]:
        """Capacity and allocatable of the node object."""
        seen = self.cluster.ask("GET", f"/api/v1/nodes/{NODE}")["status"]
        return seen["capacity"].get(resource, "none"), seen["allocatable"].get(resource, "none")

    def offers(self, resource: str, capacity: str, allocatable: str, timeout: float = TIMEOUT) -> None:
        """Wait until the node object has so many."""
        until(lambda: self.status(resource), lambda seen: seen == (capacity, allocatable), timeout)

    def held(self) -> dict[str, list[str]]:
        """POD/CONTAINER to the devices that it holds, by PodResources."""
        found: dict[str, list[str]] = {}
        for each in json.loads(self.sh("node-device-plugin holders --output json"))["held"]:
            found.setdefault(f"{each['pod']}/{each['container']}", []).append(each["device"])
        return {holder: sorted(devices) for holder, devices in found.items()}

    def restart_kubelet(self, between: str = "true") -> None:
        """Restart it, with a command while it is stopped, and wait until it has looked at every pod that was there.

        Before that it takes devices for held whose pods have ended.
        """

        def heartbeat() -> tuple[str, str]:
            conditions = self.cluster.ask("GET", f"/api/v1/nodes/{NODE}")["status"]["conditions"]
            (ready,) = [each for each in conditions if each["type"] == "Ready"]
            return ready["status"], ready["lastHeartbeatTime"]

        self.sh("systemctl stop kubelet")
        before = heartbeat()
        self.sh(f"{between}\nsystemctl start kubelet")
        until(heartbeat, lambda now: now[0] == "True" and now[1] > before[1])
        # It admits pods in the order of their age.
        self.run("youngest", {})
        self.delete("youngest")

    def create(self, name: str, containers: list[dict[str, Any]], **spec: Any) -> None:
        """A pod for this node by way of the scheduler; containers as `container` makes them."""
        content = {
            "metadata": {"name": name},
            "spec": {
                "containers": containers,
                "nodeSelector": {"kubernetes.io/hostname": NODE},
                "tolerations": [{"operator": "Exists"}],
                "hostNetwork": True,
                "automountServiceAccountToken": False,
                "terminationGracePeriodSeconds": 1,
                **spec,
            },
        }
        until(lambda: self.cluster.ask("POST", PODS, content), bool)

    def pod(self, name: str) -> dict[str, Any]:
        return dict(self.cluster.ask("GET", f"{PODS}/{name}"))

    def phase(self, name: str, wanted: str) -> dict[str, Any]:
        """Wait for a pod's phase, and give its status."""
        return dict(until(lambda: self.pod(name)["status"], lambda status: status["phase"] == wanted))

    def run(self, name: str, limits: dict[str, int], script: str = STAYS) -> dict[str, str]:
        """A pod of one container, which then runs; gives its variables."""
        self.create(name, [container("main", limits, script)])
        self.phase(name, "Running")
        return self.variables(name, "main")

    def variables(self, pod: str, of: str) -> dict[str, str]:
        """What a container printed."""
        path = f"{PODS}/{pod}/log?container={of}"
        log = until(lambda: str(self.cluster.ask("GET", path)), lambda text: text.endswith("end\n"))
        return {name: value.strip("'") for name, _, value in (line.partition("=") for line in log.splitlines()[:-1])}

    def restarts(self, pod: str, of: str = "main") -> int:
        """Of a container that is ready; -1 where it is not."""
        for each in self.pod(pod)["status"].get("containerStatuses", ()):
            if each["name"] == of and each["ready"]:
                return int(each["restartCount"])
        return -1

    def delete(self, *names: str, grace: int = 1) -> None:
        """Pods, and wait until they are gone."""
        for name in names:
            self.cluster.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds={grace}")
        until(
            lambda: [pod["metadata"]["name"] for pod in self.cluster.ask("GET", PODS)["items"]],
            lambda there: not set(names) & set(there),
        )


def container(name: str, limits: dict[str, int], script: str = STAYS, **more: Any) -> dict[str, Any]:
    """A container of a pod."""
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "resources": {"limits": {resource: str(count) for resource, count in limits.items()}},
        **more,
    }
