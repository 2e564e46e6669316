"""A profile in a cluster: the default of a DaemonSet for nodes that nobody named; against a real API server."""

from __future__ import annotations

import types

import daemonset_steps
import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugins.action import node_status
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import rollout
from daemonset_steps import IMAGINARY, LABEL, deployed

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

OTHER = {**IMAGINARY, "name": "myplugin.io/mydevice-2"}
namespace, run, read = daemonset_steps.namespace, daemonset_steps.run, daemonset_steps.read


@pytest.fixture
def pending(run, monkeypatch):
    """Deploys hosts of one play: pending(profile's resource or None, {node: resource}); returns the shared step."""
    monkeypatch.setattr(rollout, "await_node", lambda *_arguments: None)

    def deploy(default, named=(), **given):
        hosts = [run("configured", node, resource, **given) for node, resource in dict(named).items()]
        hosts += [run("configured", None, default, profile=True, **given)] if default else []
        refused = [host for host in hosts if host.get("failed")]
        return refused[0] if refused else run("deployed", pending=hosts, **given)

    return deploy


def nodes_of(run, **given):
    return run("ready", None, IMAGINARY, profile=True, **given)["nodes"]


def pool(cluster, **labels):
    """A node that joined with labels that no play has set."""
    node = cluster.node({"cpu": "2"})
    path = f"/api/v1/nodes/{node.name}"
    cluster.ask("PATCH", path, {"metadata": {"labels": labels}}, "application/merge-patch+json")
    return node


def test_a_pool_gets_its_default_before_any_node_has_joined(run, pending, read):
    selector = {"pool": "gpu"}
    planned = pending(IMAGINARY, check=True, deployment={"node_selector": selector})
    assert [each.split()[0] for each in planned["what"]] == ["configmap", "daemonset"]
    assert read("/api/v1", "configmaps") is None
    result = pending(IMAGINARY, deployment={"node_selector": selector})
    assert result["what"] == planned["what"]
    assert nodes_of(run, deployment={"node_selector": selector}) == 0
    assert set(read("/api/v1", "configmaps")["data"]) == {manifests.DEFAULT}
    spec = read("/apis/apps/v1", "daemonsets")["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == selector


def test_a_named_host_has_a_key_only_if_it_differs(cluster, run, pending, read):
    one, other = cluster.node({}), cluster.node({})
    pending(IMAGINARY, {one: IMAGINARY, other: OTHER})
    assert set(read("/api/v1", "configmaps")["data"]) == {manifests.DEFAULT, other.name}
    assert run("configured", one, IMAGINARY)["changed"] is False
    # With another default, the same step gives the host its key that lived on the former default.
    planned = pending(OTHER, {one: IMAGINARY, other: OTHER}, check=True)
    changed = pending(OTHER, {one: IMAGINARY, other: OTHER})
    assert changed["what"] == planned["what"]
    data = read("/api/v1", "configmaps")["data"]
    assert set(data) == {manifests.DEFAULT, one.name}
    assert IMAGINARY["name"] in data[one.name]
    assert OTHER["name"] in data[manifests.DEFAULT]


def test_all_hosts_of_a_first_play_are_in_the_daemonset_before_a_pod_starts(cluster, run, pending, read):
    """Else the pods that came first would be replaced."""
    serial = {"name": "devices.example.com/serial", "discover": {"paths": ["/dev/serial/by-id/*"]}}
    one, other = cluster.node({}), cluster.node({})
    run("configured", other, IMAGINARY, api_only=True)
    pending(serial, {one: OTHER, other: IMAGINARY})
    before = read("/apis/apps/v1", "daemonsets")["metadata"]["generation"]
    pending(None, {one: OTHER})
    pending(None, {other: IMAGINARY})
    pending(serial)
    assert read("/apis/apps/v1", "daemonsets")["metadata"]["generation"] == before


@pytest.mark.parametrize("release", ["former", "this"])
def test_a_key_stays_until_no_pod_of_the_former_release_is_left(cluster, run, pending, read, namespace, release):
    """Such a pod reads only the file of its node, and would not start again without that file."""
    one, other, joined = cluster.node({}), cluster.node({}), cluster.node({})
    pending(None, {one: IMAGINARY, other: IMAGINARY})
    template = read("/apis/apps/v1", "daemonsets")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    if release == "former":
        # As commit bd1f0d6 rendered it.
        container["args"] = ["run", "--config", "/etc/node-device-plugin/$(NODE_NAME)"]
    pod = {
        "metadata": {"name": "of-one", "labels": template["metadata"]["labels"]},
        "spec": {**template["spec"], "nodeName": one.name},
    }
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    named = {one: IMAGINARY, other: IMAGINARY, joined: IMAGINARY}
    pending(IMAGINARY, named)
    kept = {one.name, other.name} if release == "former" else set()
    found = set(read("/api/v1", "configmaps")["data"]) - {manifests.DEFAULT}
    assert found >= kept
    assert bool(found) is bool(kept)
    cluster.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/of-one?gracePeriodSeconds=0")
    pending(None, {other: IMAGINARY})
    assert set(read("/api/v1", "configmaps")["data"]) == {manifests.DEFAULT}


def test_labels_that_two_profiles_may_select_are_refused(pending, read):
    pending(IMAGINARY, deployment={"name": "gpu", "node_selector": {"pool": "gpu"}})
    refused = pending(IMAGINARY, deployment={"name": "arm", "node_selector": {"arch": "arm"}})
    assert "DaemonSet gpu in namespace" in refused["msg"]
    assert "select different values of one label" in refused["msg"]
    assert read("/api/v1", "configmaps", "arm") is None
    result = pending(IMAGINARY, deployment={"name": "arm", "node_selector": {"pool": "arm", "arch": "arm"}})
    assert result["changed"] is True
    # A play's own label moves a node away from the pool, so a DaemonSet of named hosts is disjoint.
    assert pending(IMAGINARY, deployment={"name": "named"})["changed"] is True


def test_a_label_of_a_play_moves_a_node_out_of_the_pool(cluster, run, pending):
    selector, node = {"pool": "gpu"}, pool(cluster, pool="gpu")
    of_pool = {"name": "gpu", "node_selector": selector}
    pending(IMAGINARY, deployment=of_pool)
    assert nodes_of(run, deployment=of_pool) == 1
    deployed(run, node)
    run("selected", node)
    assert nodes_of(run, deployment=of_pool) == 0


def test_a_daemonset_that_becomes_a_pool_s_keeps_the_nodes_that_a_play_labelled(cluster, run, pending):
    """Its own label is no other DaemonSet's, so the pods of these nodes need not end."""
    node, of_pool = pool(cluster, pool="former"), {"node_selector": {"pool": "former"}}
    deployed(run, node)
    run("selected", node)
    pending(OTHER, deployment=of_pool)
    assert "msg" not in run("selected", node, deployment=of_pool)
    assert LABEL in daemonset_steps.labels(node)
    assert nodes_of(run, deployment=of_pool) == 0
    run("removed", node, deployment=of_pool)
    assert nodes_of(run, deployment=of_pool) == 1


def test_a_host_of_a_pool_needs_the_pool_s_labels(cluster, run, pending):
    inside, outside = pool(cluster, pool="gpu"), cluster.node({})
    deployment = {"name": "gpu", "node_selector": {"pool": "gpu"}}
    pending(IMAGINARY, deployment=deployment)
    assert run("selected", inside, deployment=deployment)["changed"] is False
    assert LABEL not in daemonset_steps.labels(inside)
    said = run("selected", outside, deployment=deployment)["msg"]
    assert f"DaemonSet gpu does not select node {outside.name}" in said


def test_what_a_named_host_still_uses_is_not_removed(cluster, run, pending, read):
    node = cluster.node({})
    pending(IMAGINARY, {node: OTHER})
    of_profile = run("removed", profile=True)
    assert f"still serves {node.name}" in run("absent", pending=[of_profile])["msg"]
    # Both hosts in one play, the profile first.
    planned = run("absent", pending=[of_profile, run("removed", node, check=True)], check=True)
    assert read("/api/v1", "configmaps") is not None
    removed = run("absent", pending=[of_profile, run("removed", node)])
    assert removed["what"] == planned["what"]
    assert (read("/api/v1", "configmaps"), read("/apis/apps/v1", "daemonsets")) == (None, None)


def test_the_report_has_one_row_for_all_and_one_for_each_that_differs(cluster, pending, namespace):
    selector = {"pool": "report"}
    ready = [{"op": "add", "path": "/status/conditions", "value": [{"type": "Ready", "status": "True"}]}]
    nodes = [pool(cluster, **selector) for _ in range(3)]
    for node in nodes:
        node.patch("kubelet", ready)
    pool(cluster, **{LABEL: "nobody"})
    pending(IMAGINARY, deployment={"node_selector": selector})
    action = object.__new__(node_status.ActionModule)
    deployment = {"image": "example.com/plugin:1", "namespace": namespace, "node_selector": selector}
    arguments = {"command": "/none", "kubeconfig": cluster.kubeconfig(), "deployment": deployment}
    action._task = types.SimpleNamespace(args=arguments, check_mode=False)
    action._templar = types.SimpleNamespace(template=lambda value: value)
    variables = {"node_devices_profile": True, "node_devices_resources": [IMAGINARY]}
    entries = action.run(None, {"inventory_hostname": "gpu-pool", **variables})["statuses"]
    # No DaemonSet controller runs beside this API server, so no node has its pod.
    assert [(entry["name"], entry["state"]) for entry in entries] == [
        ("gpu-pool", "wrong"),
        *((name, "wrong") for name in sorted(node.name for node in nodes)),
    ]
    assert entries[0]["members"] == 0
    assert "label nodedevices.kubernetes/device-plugin=nobody" in entries[0]["problems"][0]
    assert "has no pod on the node" in entries[1]["problems"][0]
