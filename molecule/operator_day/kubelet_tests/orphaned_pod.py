"""Deletes a pod through the API while the kubelet is stopped. The container must end, and the device must be free."""

from __future__ import annotations

from cluster_api import until
from tested_node import RESOURCE, TestedNode

CONTAINERS = "ctr --namespace k8s.io containers list"


def run(node: TestedNode) -> str:
    seen = node.run("orphan", {RESOURCE: 1})
    (container,) = node.pod("orphan")["status"]["containerStatuses"]
    id = container["containerID"].rpartition("/")[2]
    assert id in node.sh(CONTAINERS)
    node.sh("systemctl stop kubelet")
    node.delete("orphan", grace=0)
    assert id in node.sh(CONTAINERS), "somebody else ended the container"
    node.restart_kubelet()
    until(lambda: node.sh(CONTAINERS), lambda listed: id not in listed)
    until(node.held, lambda held: held == {})
    # Both devices must be free.
    both = node.run("heir", {RESOURCE: 2})
    assert set(both.values()) == {"test0", "test1"}, both
    node.delete("heir")
    return f"{seen['TEST_0']} was free again"
