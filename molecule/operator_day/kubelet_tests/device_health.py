"""Removes and restores a device. Checks the node's quantities, and the status of pods with the device."""

from __future__ import annotations

from typing import Any

from cluster_api import until
from tested_node import RESOURCE, TestedNode, container


def run(node: TestedNode) -> str:
    seen = node.run("holder", {RESOURCE: 1})
    held = seen["TEST_0"]
    node.create("no-image", [{**container("main", {RESOURCE: 1}), "image": "localhost/no/such:image"}])
    until(
        lambda: node.pod("no-image")["status"].get("containerStatuses", ()),
        lambda statuses: [each["state"].get("waiting", {}).get("reason") for each in statuses] == ["ErrImageNeverPull"],
    )

    def health(pod: str) -> Any:
        (status,) = node.pod(pod)["status"]["containerStatuses"]
        return [
            (resource["name"], each["resourceID"], each["health"])
            for resource in status.get("allocatedResourcesStatus", ())
            for each in resource["resources"]
        ]

    (other,) = {"test0", "test1"} - {held}
    for pod, device in (("holder", held), ("no-image", other)):
        until(lambda pod=pod: health(pod), lambda now, id=device: now == [(RESOURCE, id, "Healthy")])
    node.offers(RESOURCE, "2", "2")
    node.sh("rm /dev/test0")
    node.offers(RESOURCE, "2", "1")
    node.sh("rm /dev/test1")
    node.offers(RESOURCE, "2", "0")
    for pod, device in (("holder", held), ("no-image", other)):
        until(lambda pod=pod: health(pod), lambda now, id=device: now == [(RESOURCE, id, "Unhealthy")])
    assert node.restarts("holder") == 0, node.pod("holder")
    node.delete("no-image")
    assert node.status(RESOURCE) == ("2", "0")
    node.sh("mknod -m 0666 /dev/test0 c 1 8")
    node.offers(RESOURCE, "2", "1")
    node.sh("mknod -m 0666 /dev/test1 c 1 8")
    node.offers(RESOURCE, "2", "2")
    until(lambda: health("holder"), lambda now: now == [(RESOURCE, held, "Healthy")])
    assert node.restarts("holder") == 0, node.pod("holder")
    node.delete("holder")
    return f"allocatable 2, 1, 0, 1, 2 of 2; {held} was Healthy, Unhealthy, Healthy in its pod's status"
