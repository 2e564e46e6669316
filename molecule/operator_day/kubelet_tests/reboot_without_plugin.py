"""Checks that after a reboot, a pod whose device no plugin offers yet fails admission and holds no device."""

from __future__ import annotations

from cluster_api import until
from tested_node import RESOURCE, TestedNode

#: Ends all containers, because after a reboot no container runs at the kubelet's start.
END_ALL = r"""
for task in $(ctr --namespace k8s.io tasks list --quiet); do
  ctr --namespace k8s.io tasks kill --signal SIGKILL "$task" || true
done
for look in $(seq 100); do
  ctr --namespace k8s.io tasks list | grep -q RUNNING || break
  sleep 0.1
done
! ctr --namespace k8s.io tasks list | grep RUNNING
"""


def run(node: TestedNode) -> str:
    node.run("rebooted", {RESOURCE: 2})
    node.sh("systemctl stop node-device-plugin")
    node.restart_kubelet(END_ALL)
    status = node.phase("rebooted", "Failed")
    assert status["reason"] == "UnexpectedAdmissionError", status
    assert "no healthy devices present" in status["message"], status
    until(node.held, lambda held: held == {})
    node.sh("systemctl start node-device-plugin")
    node.offers(RESOURCE, "2", "2")
    node.delete("rebooted")
    return str(status["message"])
