"""Queries the API of a throwaway cluster for the scenarios' programs. Needs only Python and PyYAML."""

from __future__ import annotations

import base64
import json
import pathlib
import ssl
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import yaml

# Seconds that a wait may take.
TIMEOUT = 60
PODS = "/api/v1/namespaces/default/pods"


class Cluster:
    """The API, with the administrator's kubeconfig."""

    def __init__(self, path: str) -> None:
        config = yaml.safe_load(pathlib.Path(path).read_text())
        cluster = config["clusters"][0]["cluster"]
        self._server = cluster["server"]
        self._token = config["users"][0]["user"]["token"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)

    def ask(self, method: str, path: str, content: Any = None, kind: str = "application/json") -> Any:
        """Return the answer: JSON data, or the text of a log or of metrics."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self._server}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=10, context=self._tls) as answer:
            text = answer.read().decode()
        return text if path.partition("?")[0].endswith(("/log", "/metrics")) else json.loads(text)

    def watch(self, path: str, idle: float = 120) -> Iterator[Any]:
        """Yield a watch's events until the API server ends the watch. Raises OSError after ``idle`` silent seconds."""
        request = urllib.request.Request(f"{self._server}{path}", headers={"Authorization": f"Bearer {self._token}"})
        with urllib.request.urlopen(request, timeout=idle, context=self._tls) as answer:
            for line in answer:
                yield json.loads(line)

    def create(self, name: str, resources: dict[str, int], node: str = "") -> None:
        """Create a pod that prints its device variables.

        node: the node for the pod; empty for any node.
        """
        wanted = {resource: str(count) for resource, count in resources.items()}
        container = {
            "name": "main",
            "image": "localhost/node-devices/busybox:lab",
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", "echo Device vars:; set | grep ^DEV_; exec sleep 3600"],
            "resources": {"limits": wanted},
        }
        spec: dict[str, Any] = {"containers": [container], "hostNetwork": True, "automountServiceAccountToken": False}
        if node:
            term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
            only_there = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
            spec["affinity"] = {"nodeAffinity": only_there}
        self.ask("POST", PODS, {"metadata": {"name": name}, "spec": spec})

    def delete(self, *names: str) -> None:
        """Delete pods, and wait until they no longer exist."""
        for name in names:
            self.ask("DELETE", f"{PODS}/{name}?gracePeriodSeconds=1")
        until(
            lambda: [pod["metadata"]["name"] for pod in self.ask("GET", PODS)["items"]],
            lambda there: not set(names) & set(there),
        )


def until(look: Callable[[], Any], fine: Callable[[Any], bool], timeout: float = TIMEOUT) -> Any:
    """Wait until ``fine`` accepts the result of ``look``, and return it. Raises AssertionError after ``timeout``."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            seen = look()
        except urllib.error.HTTPError as error:
            seen = f"{error.code} {error.read().decode()}"
        except OSError as error:
            seen = str(error)
        else:
            if fine(seen):
                return seen
        assert time.monotonic() < deadline, f"after {timeout} s there is still: {seen}"
        time.sleep(0.2)


def extended(cluster: Cluster, node: str, part: str) -> dict[str, str]:
    """Return the extended resources of a node object."""
    return {
        name: value
        for name, value in cluster.ask("GET", f"/api/v1/nodes/{node}")["status"][part].items()
        if "/" in name
    }


def advertises(cluster: Cluster, node: str, prefix: str, wanted: dict[str, str]) -> None:
    """Wait until a node object has exactly the wanted quantities of all resources with this prefix."""
    for part in ("capacity", "allocatable"):

        def look(part: str = part) -> dict[str, str]:
            return {name: value for name, value in extended(cluster, node, part).items() if name.startswith(prefix)}

        until(look, lambda seen: seen == wanted)
    print(f"{node} advertises {wanted}")


def runs(cluster: Cluster, name: str, node: str, log: list[str]) -> None:
    """Wait until a pod runs on a node and has printed its variables."""

    def look() -> tuple[str, str]:
        pod = cluster.ask("GET", f"{PODS}/{name}")
        return pod["status"]["phase"], pod["spec"].get("nodeName", "")

    until(look, lambda seen: seen == ("Running", node))
    text = "\n".join(["Device vars:", *log, ""])
    until(lambda: cluster.ask("GET", f"{PODS}/{name}/log"), lambda seen: seen == text)
    print(f"{name} runs on {node}: {' '.join(log)}")


def is_pending(cluster: Cluster, name: str, nodes: int, words: set[str]) -> None:
    """Wait until the scheduler reports why a pod fits on none of the nodes. words: its reasons, in any order."""

    def look() -> str:
        conditions = cluster.ask("GET", f"{PODS}/{name}")["status"].get("conditions", ())
        return next(
            (item["message"] for item in conditions if item["type"] == "PodScheduled" and "message" in item), ""
        )

    def said(message: str) -> str:
        # Omit the sentences about preemption.
        return message.split(". ")[0]

    def counts(message: str) -> tuple[str, set[str]]:
        head, _, rest = said(message).partition(": ")
        return head, set(rest.split(", "))

    # Retry, because a node that is Ready again keeps its taint for a moment.
    message = until(look, lambda message: counts(message) == (f"0/{nodes} nodes are available", words))
    print(f"{name} is Pending: {said(message)}")


def no_pods(cluster: Cluster) -> None:
    """Delete all pods without an owner."""
    pods = (pod["metadata"] for pod in cluster.ask("GET", PODS)["items"])
    cluster.delete(*(pod["name"] for pod in pods if pod.get("ownerReferences") is None))


def expect(*steps: Callable[[Cluster], None]) -> None:
    """Run the steps of the command line. Exit with 1 and a sentence for the first failed step."""
    by_name = {step.__name__.replace("_", "-"): step for step in steps}
    api = Cluster(sys.argv[1])
    for name in sys.argv[2:]:
        try:
            by_name[name](api)
        except AssertionError as error:
            sys.exit(f"{name}: {error}")
