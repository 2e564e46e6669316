"""Restarts the kubelet without the plugin. A pod that succeeded must stay so, because it is not admitted again."""

from __future__ import annotations

from tested_node import RESOURCE, TestedNode, container


def run(node: TestedNode) -> str:
    node.create("done", [container("main", {RESOURCE: 1}, "echo $TEST_0; echo end")], restartPolicy="Never")
    before = node.phase("done", "Succeeded")
    node.sh("systemctl stop node-device-plugin")
    node.offers(RESOURCE, "2", "0")
    node.restart_kubelet()
    after = node.pod("done")["status"]
    assert after["phase"] == "Succeeded", after
    assert "reason" not in after, after
    assert after["containerStatuses"] == before["containerStatuses"], after
    node.sh("systemctl start node-device-plugin")
    node.offers(RESOURCE, "2", "2")
    node.delete("done")
    return "Succeeded before and after"
