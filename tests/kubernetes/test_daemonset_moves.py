"""Nodes that go from one DaemonSet to another, by its name or its namespace; against a real API server."""

from __future__ import annotations

import urllib.error

import daemonset_steps
import pytest
from daemonset_steps import IMAGINARY, LABEL, deployed, labels

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

namespace, run, read = daemonset_steps.namespace, daemonset_steps.run, daemonset_steps.read


def test_a_node_goes_to_the_daemonset_of_another_name(cluster, run, read, namespace):
    one, other = cluster.node({}), cluster.node({})
    deployed(run, one, other)
    for node in (one, other):
        run("selected", node)
    second = {"name": "second", "namespace": f"{namespace}-second"}
    nodes = [one.name, other.name]

    def move(node, check=False):
        configured = run("configured", node, IMAGINARY, deployment=second, check=check)
        assert configured["other_daemonsets"] == [{"namespace": namespace, "name": "node-device-plugin"}]
        run("deployed", pending=[configured], nodes=nodes, check=check)
        run("selected", node, deployment=second, check=check)
        return run("left", pending=[configured], check=check)["what"]

    foreseen = move(one, check=True)
    assert read("/api/v1", "configmaps")["data"].keys() == {one.name, other.name}
    # What is left of it is as it was, for the other node.
    assert move(one) == foreseen == [f"configmap node-device-plugin in namespace {namespace}, {one.name}"]
    assert read("/api/v1", "configmaps")["data"].keys() == {other.name}
    assert (labels(one)[LABEL], labels(other)[LABEL]) == ("second", "node-device-plugin")
    assert [each.split()[0] for each in move(other)] == ["configmap", "daemonset", "configmap", "namespace"]
    assert read("/apis/apps/v1", "daemonsets") is None
    assert labels(other)[LABEL] == "second"
    assert run("configured", other, IMAGINARY, deployment=second)["other_daemonsets"] == []


def test_hosts_that_leave_one_daemonset_for_several(cluster, run, read, namespace):
    one, other = cluster.node({}), cluster.node({})
    deployed(run, one, other)
    pending = [
        run("configured", node, IMAGINARY, deployment={"name": name, "image": f"example.com/{name}"})
        for node, name in ((one, "a"), (other, "b"))
    ]
    run("deployed", pending=pending, nodes=[one.name, other.name])
    kinds = [each.split()[0] for each in run("left", pending=pending)["what"]]
    assert kinds == ["configmap", "configmap", "daemonset", "configmap"]
    # The namespace is theirs now.
    assert read("/api/v1")["status"]["phase"] == "Active"
    assert read("/api/v1", "configmaps", "a")["data"].keys() == {one.name}


def test_who_was_nowhere_else_leaves_nothing(cluster, run, read):
    node = cluster.node({})
    pending, _result = deployed(run, node)
    assert (pending[0]["other_daemonsets"], run("left", pending=pending)["what"]) == ([], [])
    assert read("/apis/apps/v1", "daemonsets") is not None


@pytest.mark.parametrize("check", [False, True])
def test_another_namespace_under_the_same_name_is_refused(cluster, run, namespace, check):
    one, other = cluster.node({}), cluster.node({})
    deployed(run, one)
    moved = {"namespace": f"{namespace}-2"}
    # Nodes that were in neither would be of both, too.
    for node in (one, other):
        assert run("configured", node, IMAGINARY, deployment=moved, check=check)["msg"] == (
            f"worker1: DaemonSet node-device-plugin in namespace {namespace} has the same name as the new one in "
            f"namespace {namespace}-2, so both would select the same nodes by the label value node-device-plugin: set "
            "another device_plugin_deployment.name as well, so that the nodes move, or run uninstall.yml with "
            f"namespace {namespace} first"
        )
    with pytest.raises(urllib.error.HTTPError, match="404"):
        cluster.ask("GET", f"/api/v1/namespaces/{namespace}-2")


def test_two_namespaces_under_one_name_in_one_play(cluster, run, read, namespace):
    one, other = cluster.node({}), cluster.node({})
    moved = {"namespace": f"{namespace}-2"}
    pending = [run("configured", one, IMAGINARY), run("configured", other, IMAGINARY, deployment=moved)]
    pending[1]["host"] = "worker2"
    assert run("deployed", pending=pending, nodes=[one.name, other.name])["msg"] == (
        f"worker2: device_plugin_deployment.namespace: is '{namespace}-2' for worker2, but '{namespace}' for worker1, "
        "and both DaemonSets select their nodes by the same name node-device-plugin: set another "
        "device_plugin_deployment.name for one of them"
    )
    assert read("/apis/apps/v1", "daemonsets") is not None


def test_an_uninstall_that_was_told_another_namespace(cluster, run, read, namespace):
    node = cluster.node({})
    deployed(run, node)
    run("selected", node)
    told = {"namespace": f"{namespace}-2"}
    foreseen = run("removed", node, deployment=told, check=True)
    assert foreseen["other_daemonsets"] == [{"namespace": namespace, "name": "node-device-plugin"}]
    assert [each.split()[0] for each in foreseen["what"]] == ["label", "configmap"]
    removed = run("removed", node, deployment=told)
    assert removed["what"] == foreseen["what"]
    assert LABEL not in labels(node)
    run("absent", pending=[removed], deployment=told)
    assert read("/apis/apps/v1", "daemonsets") is None
    assert read("/api/v1")["status"]["phase"] == "Terminating"
