"""Records what happens to the workloads of a cluster: watch.py KUBECONFIG RECORDS END

Workloads are the pods with the label of workloads.py. RECORDS gets one JSON object per line, of two kinds: a state of a
pod, and the devices that a container has printed. Ends when the file END exists. If the watch has a gap, exits with 1
and a sentence. judge.py reads the records.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import pathlib
import sys
import threading
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "shared"))

from cluster_api import PODS, Cluster, until
from workloads import ENDS, LABEL, RESTARTS, devices_of

#: Seconds after which the API server ends a watch, so that the program checks for END.
PERIOD = 5


def of_container(status: dict[str, Any]) -> dict[str, Any]:
    """Return the recorded part of a container's status."""
    return {
        "name": status["name"],
        "restarts": status["restartCount"],
        "ready": status["ready"],
        "running": "running" in status["state"],
        "id": status.get("containerID", ""),
        # The devices by resource, as the kubelet reports them.
        "allocated": {
            each["name"]: sorted(device["resourceID"] for device in each["resources"])
            for each in status.get("allocatedResourcesStatus", ())
        },
    }


def of_pod(event: str, pod: dict[str, Any]) -> dict[str, Any]:
    """Return a pod's record. workloads.py annotates a requested end and the requested number of restarts."""
    metadata, status = pod["metadata"], pod["status"]
    annotations = metadata.get("annotations", {})
    return {
        "kind": "pod",
        "at": time.time(),
        "event": event,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "node": pod["spec"].get("nodeName", ""),
        "wants": devices_of(pod),
        "to_end": ENDS in annotations,
        "to_restart": int(annotations.get(RESTARTS, "0")),
        "deleting": "deletionTimestamp" in metadata,
        "phase": status.get("phase", ""),
        "reason": status.get("reason", ""),
        "message": status.get("message", ""),
        "disruption": [
            each.get("reason", "")
            for each in status.get("conditions", ())
            if each["type"] == "DisruptionTarget" and each["status"] == "True"
        ],
        "containers": [of_container(each) for each in status.get("containerStatuses", ())],
    }


class Watch:
    """Records the pods' states, and once the devices that each container sees."""

    def __init__(self, cluster: Cluster, records: pathlib.Path) -> None:
        self._cluster = cluster
        self._file = records.open("a", encoding="utf-8", buffering=1)
        self._lock = threading.Lock()
        self._pool = concurrent.futures.ThreadPoolExecutor(4)
        self._asked: dict[str, concurrent.futures.Future[None]] = {}
        self._version = ""

    def begin(self) -> None:
        listed = until(lambda: self._cluster.ask("GET", f"{PODS}?labelSelector={LABEL}"), bool)
        self._version = listed["metadata"]["resourceVersion"]
        for pod in listed["items"]:
            self._take("ADDED", pod)

    def follow(self) -> None:
        """Follow the pods for PERIOD seconds."""
        path = (
            f"{PODS}?watch=1&labelSelector={LABEL}&allowWatchBookmarks=true"
            f"&timeoutSeconds={PERIOD}&resourceVersion={self._version}"
        )
        for event in self._cluster.watch(path):
            if event["type"] == "ERROR":
                sys.exit(f"the watch has a gap: {event['object']}")
            self._version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                self._take(event["type"], event["object"])

    def end(self) -> None:
        """Wait until the containers' devices are recorded."""
        for asked in self._asked.values():
            asked.result()

    def _take(self, event: str, pod: dict[str, Any]) -> None:
        record = of_pod(event, pod)
        self._write(record)
        for container in record["containers"]:
            if container["running"] and container["id"] not in self._asked:
                self._asked[container["id"]] = self._pool.submit(self._ask, record, container)

    def _ask(self, pod: dict[str, Any], container: dict[str, Any]) -> None:
        path = f"{PODS}/{pod['name']}/log?container={container['name']}"
        try:
            log = until(lambda: str(self._cluster.ask("GET", path)), lambda text: "\nend\n" in f"\n{text}")
        except AssertionError:
            # judge.py reports the missing record.
            return
        seen = sorted(line.removeprefix("sees ") for line in log.splitlines() if line.startswith("sees "))
        self._write(
            {
                "kind": "seen",
                "at": time.time(),
                "name": pod["name"],
                "uid": pod["uid"],
                "node": pod["node"],
                "container": container["name"],
                "restarts": container["restarts"],
                "devices": seen,
            }
        )

    def _write(self, record: dict[str, Any]) -> None:
        with self._lock:
            self._file.write(json.dumps(record) + "\n")


def main(kubeconfig: str, records: str, end: str) -> None:
    watch = Watch(Cluster(kubeconfig), pathlib.Path(records))
    watch.begin()
    silent = time.monotonic()
    while not os.path.exists(end):
        try:
            watch.follow()
            silent = time.monotonic()
        except OSError as error:
            # After a failed scenario, the API server no longer exists.
            if time.monotonic() - silent > 60:
                sys.exit(f"the API server does not answer: {error}")
            time.sleep(0.2)
    watch.follow()
    watch.end()


if __name__ == "__main__":
    main(*sys.argv[1:])
