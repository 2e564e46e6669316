"""Hosts that share a DaemonSet, and in what they differ."""

from __future__ import annotations

from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import groups


def test_a_host_that_differs_is_compared_with_the_first_one():
    classes = {"worker1": "high", "worker2": "low", "worker3": "low"}
    results = [{"host": host, "node": host, "deployment": {"priority_class": own}} for host, own in classes.items()]
    (group,) = groups.of(results, {"kubeconfig": "/kubeconfig"}, cluster_of=str)
    same = "all hosts of a DaemonSet need the same value, so set it"
    once = f"{same}, or another device_plugin_deployment.name for one of them"
    assert group.problems == [
        f"device_plugin_deployment.priority_class: is 'low' for worker2, but 'high' for worker1: {once}",
        f"device_plugin_deployment.priority_class: is 'low' for worker3, but 'high' for worker1: {once}",
    ]
