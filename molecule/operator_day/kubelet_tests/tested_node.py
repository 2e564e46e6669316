"""Operates the node of the kubelet's tests: its API, its kubelet and its pods."""

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
#: A script that prints its variables, such as TEST_0=test1, and waits. After a kill, it starts again.
STAYS = "set | grep -E '^[A-Z]+_[0-9]='; echo end; trap exit TERM; sleep 100000 & wait"
CHECKPOINT = "/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"


class TestedNode:
    """The tested node. By default, each wait raises AssertionError after a minute."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def sh(self, script: str, stdin: str = "") -> str:
        """Run a script on the node and return its output. Raises AssertionError if the script fails."""
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
        """Return a resource's capacity and allocatable quantity in the node object."""
        seen = self.cluster.ask("GET", f"/api/v1/nodes/{NODE}")["status"]
        return seen["capacity"].get(resource, "none"), seen["allocatable"].get(resource, "none")

    def offers(self, resource: str, capacity: str, allocatable: str, timeout: float = TIMEOUT) -> None:
        """Wait until the node object has these quantities of a resource."""
        until(lambda: self.status(resource), lambda seen: seen == (capacity, allocatable), timeout)

    def held(self) -> dict[str, list[str]]:
        """Return the held devices by POD/CONTAINER. Source: PodResources."""
        found: dict[str, list[str]] = {}
        for each in json.loads(self.sh("node-device-plugin holders --output json"))["held"]:
            found.setdefault(f"{each['pod']}/{each['container']}", []).append(each["device"])
        return {holder: sorted(devices) for holder, devices in found.items()}

    def restart_kubelet(self, between: str = "true") -> None:
        """Restart the kubelet, run a command while it is stopped, and wait until it has processed all existing pods.

        Before that, the kubelet reports devices of ended pods as held.
        """

        def heartbeat() -> tuple[str, str]:
            conditions = self.cluster.ask("GET", f"/api/v1/nodes/{NODE}")["status"]["conditions"]
            (ready,) = [each for each in conditions if each["type"] == "Ready"]
            return ready["status"], ready["lastHeartbeatTime"]

        self.sh("systemctl stop kubelet")
        before = heartbeat()
        self.sh(f"{between}\nsystemctl start kubelet")
        until(heartbeat, lambda now: now[0] == "True" and now[1] > before[1])
        # The kubelet admits pods in the order of their age.
        self.run("youngest", {})
        self.delete("youngest")

    def create(self, name: str, containers: list[dict[str, Any]], **spec: Any) -> None:
        """Create a pod that the scheduler places on this node. containers: results of `container`."""
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
        """Wait for a pod's phase, and return the pod's status."""
        return dict(until(lambda: self.pod(name)["status"], lambda status: status["phase"] == wanted))

    def run(self, name: str, limits: dict[str, int], script: str = STAYS) -> dict[str, str]:
        """Create a pod with one container, wait until it runs, and return its variables."""
        self.create(name, [container("main", limits, script)])
        self.phase(name, "Running")
        return self.variables(name, "main")

    def variables(self, pod: str, of: str) -> dict[str, str]:
        """Return the variables that a container printed."""
        path = f"{PODS}/{pod}/log?container={of}"
        log = until(lambda: str(self.cluster.ask("GET", path)), lambda text: text.endswith("end\n"))
        return {name: value.strip("'") for name, _, value in (line.partition("=") for line in log.splitlines()[:-1])}

    def restarts(self, pod: str, of: str = "main") -> int:
        """Return the number of restarts of a ready container; -1 if the container is not ready."""
        for each in self.pod(pod)["status"].get("containerStatuses", ()):
            if each["name"] == of and each["ready"]:
                return int(each["restartCount"])
        return -1

    def delete(self, *names: str, grace: int = 1) -> None:
        """Delete pods, and wait until they no longer exist."""
        for name in names:
            self.cluster.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds={grace}")
        until(
            lambda: [pod["metadata"]["name"] for pod in self.cluster.ask("GET", PODS)["items"]],
            lambda there: not set(names) & set(there),
        )


def container(name: str, limits: dict[str, int], script: str = STAYS, **more: Any) -> dict[str, Any]:
    """Return the manifest of a container."""
    return {
        "name": name,
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", script],
        "resources": {"limits": {resource: str(count) for resource, count in limits.items()}},
        **more,
    }
