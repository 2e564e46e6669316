"""Restarts a container, the kubelet, and the container again. The pod must keep its device."""

from __future__ import annotations

from cluster_api import until
from tested_node import RESOURCE, TestedNode

KILL = "pkill -KILL -f 'sleep 10000[0]'"


def run(node: TestedNode) -> str:
    seen = node.run("keeper", {RESOURCE: 1})
    uid = node.pod("keeper")["metadata"]["uid"]
    for restarts in (1, 2):
        node.sh(KILL)
        until(lambda: node.restarts("keeper"), lambda now, wanted=restarts: now == wanted)
        again = node.variables("keeper", "main")
        assert again == seen, f"{again} after restart {restarts}, {seen} before"
        if restarts == 1:
            node.restart_kubelet()
            node.offers(RESOURCE, "2", "2")
            assert node.restarts("keeper") == 1, node.pod("keeper")
            assert node.variables("keeper", "main") == seen
        assert node.held() == {"keeper/main": [seen["TEST_0"]]}, node.held()
    # A second pod must get the other device.
    other = node.run("second", {RESOURCE: 1})
    assert other != seen, f"both have {seen}"
    assert node.pod("keeper")["metadata"]["uid"] == uid
    node.delete("keeper", "second")
    return f"{seen['TEST_0']} through two restarts of the container and one of the kubelet"
