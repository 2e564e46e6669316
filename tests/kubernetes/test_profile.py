"""A profile in a cluster: the default of a DaemonSet for nodes that nobody named; against a real API server."""

from __future__ import annotations

import json
import types

import daemonset_steps
import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import parse_configuration
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification.proof_record import Record
from ansible_collections.nodedevices.kubernetes.plugins.action import profile
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import proof, rollout
from daemonset_steps import IMAGINARY, LABEL, deployed

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

OTHER = {**IMAGINARY, "name": "myplugin.io/mydevice-2"}
namespace, run, read = daemonset_steps.namespace, daemonset_steps.run, daemonset_steps.read


@pytest.fixture
def of_profile(cluster, namespace, monkeypatch):
    """Brings about a state of a profile: of_profile(state, *resources, check=, deployment=, **arguments)."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(rollout, "await_node", lambda *_arguments: None)

    def run_state(state, *resources, check=False, deployment=None, **given):
        arguments = {
            "state": state,
            "kubeconfig": cluster.kubeconfig(),
            "deployment": {"image": "example.com/plugin:1", "namespace": namespace, **(deployment or {})},
            "declaration": {"configuration": {"resources": list(resources)}, "resources": [], "needs_cdi": False},
            "sample": 3,
            **given,
        }
        results = []
        for _again in "12" if not check else "1":
            action = object.__new__(profile.ActionModule)
            action._task = types.SimpleNamespace(args=arguments, check_mode=check)
            action._templar = types.SimpleNamespace(template=lambda value: value)
            results.append(action.run(None, {"inventory_hostname": "gpu-pool", "node_devices_profile": True}))
        if not results[0].get("failed"):
            assert results[-1]["changed"] is (check and results[0]["changed"])
        return results[0]

    return run_state


def pool(cluster, **labels):
    """A node that joined with labels that no play has set."""
    node = cluster.node({"cpu": "2"})
    path = f"/api/v1/nodes/{node.name}"
    cluster.ask("PATCH", path, {"metadata": {"labels": labels}}, "application/merge-patch+json")
    return node


def test_a_pool_gets_its_default_before_any_node_has_joined(of_profile, read):
    selector = {"pool": "gpu"}
    planned = of_profile("deployed", IMAGINARY, check=True, deployment={"node_selector": selector})
    assert planned["changed"] is True
    assert read("/api/v1", "configmaps") is None
    result = of_profile("deployed", IMAGINARY, deployment={"node_selector": selector})
    assert (result["changed"], result["nodes"]) == (True, 0)
    assert set(read("/api/v1", "configmaps")["data"]) == {manifests.DEFAULT}
    spec = read("/apis/apps/v1", "daemonsets")["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == selector


def test_a_named_host_has_a_key_only_if_it_differs(cluster, run, of_profile, read):
    one, other = cluster.node({}), cluster.node({})
    deployed(run, one)
    deployed(run, other, resources=(OTHER,))
    of_profile("deployed", IMAGINARY)
    assert set(read("/api/v1", "configmaps")["data"]) == {manifests.DEFAULT, other.name}
    assert run("configured", one, IMAGINARY)["changed"] is False
    # With another default, each named host that differs gets its key in its own play.
    of_profile("deployed", OTHER)
    assert set(read("/api/v1", "configmaps")["data"]) == {manifests.DEFAULT}
    run("configured", one, IMAGINARY)
    assert set(read("/api/v1", "configmaps")["data"]) == {manifests.DEFAULT, one.name}


def test_labels_that_two_profiles_may_select_are_refused(of_profile, read):
    of_profile("deployed", IMAGINARY, deployment={"name": "gpu", "node_selector": {"pool": "gpu"}})
    refused = of_profile("deployed", IMAGINARY, deployment={"name": "arm", "node_selector": {"arch": "arm"}})
    assert "DaemonSet gpu in namespace" in refused["msg"]
    assert "select different values of one label" in refused["msg"]
    assert read("/api/v1", "configmaps", "arm") is None
    of_profile("deployed", IMAGINARY, deployment={"name": "arm", "node_selector": {"pool": "arm", "arch": "arm"}})
    # A play's own label moves a node away from the pool, so a DaemonSet of named hosts is disjoint.
    of_profile("deployed", IMAGINARY, deployment={"name": "named"})


def test_a_label_of_a_play_moves_a_node_out_of_the_pool(cluster, run, of_profile):
    selector, node = {"pool": "gpu"}, pool(cluster, pool="gpu")
    of_pool = {"name": "gpu", "node_selector": selector}
    assert of_profile("deployed", IMAGINARY, deployment=of_pool)["nodes"] == 1
    deployed(run, node)
    run("selected", node)
    assert of_profile("deployed", IMAGINARY, check=True, deployment=of_pool)["nodes"] == 0


def test_a_host_of_a_pool_needs_the_pool_s_labels(cluster, run, of_profile):
    inside, outside = pool(cluster, pool="gpu"), cluster.node({})
    deployment = {"name": "gpu", "node_selector": {"pool": "gpu"}}
    of_profile("deployed", IMAGINARY, deployment=deployment)
    assert run("selected", inside, deployment=deployment)["changed"] is False
    assert LABEL not in daemonset_steps.labels(inside)
    said = run("selected", outside, deployment=deployment)["msg"]
    assert f"DaemonSet gpu does not select node {outside.name}" in said


def test_what_a_named_host_still_uses_is_not_removed(cluster, run, of_profile, read):
    node = cluster.node({})
    deployed(run, node, resources=(OTHER,))
    of_profile("deployed", IMAGINARY)
    assert f"still serves {node.name}" in of_profile("absent")["msg"]
    run("removed", node)
    assert of_profile("absent", check=True)["changed"] is True
    assert read("/api/v1", "configmaps") is not None
    assert of_profile("absent")["changed"] is True
    assert (read("/api/v1", "configmaps"), read("/apis/apps/v1", "daemonsets")) == (None, None)


def test_the_report_has_one_row_for_all_and_one_for_each_that_differs(cluster, of_profile):
    selector = {"pool": "report"}
    info = {"containerRuntimeVersion": "containerd://1.7.28"}
    ready = [
        {"op": "add", "path": "/status/conditions", "value": [{"type": "Ready", "status": "True"}]},
        *({"op": "add", "path": f"/status/nodeInfo/{key}", "value": value} for key, value in info.items()),
    ]
    nodes = [pool(cluster, **selector) for _ in range(3)]
    for node in nodes:
        node.patch("kubelet", ready)
    pool(cluster, **{LABEL: "nobody"})
    of_profile("deployed", IMAGINARY, deployment={"node_selector": selector})
    entries = of_profile("reported", IMAGINARY, deployment={"node_selector": selector})["statuses"]
    # No DaemonSet controller runs beside this API server, so no node has its pod.
    assert [(entry["name"], entry["state"]) for entry in entries] == [
        ("gpu-pool", "wrong"),
        *((node.name, "wrong") for node in nodes),
    ]
    assert entries[0]["members"] == 0
    assert "label nodedevices.kubernetes/device-plugin=nobody" in entries[0]["problems"][0]
    assert "has no pod on the node" in entries[1]["problems"][0]
    # A runtime whose CDI is off by default is in doubt until a proof shows more.
    injects = {"configuration": {"resources": [IMAGINARY]}, "resources": [], "needs_cdi": True}
    (resource,) = parse_configuration(injects["configuration"]).resources
    record = Record({}, "example.com/plugin:1")
    record.note(resource, "containerd 1.7.28", proven=True)
    cluster.ask(
        "PATCH",
        f"/api/v1/nodes/{nodes[0].name}",
        {"metadata": {"annotations": {proof.RECORD: json.dumps(record.proven)}}},
        "application/merge-patch+json",
    )
    entries = of_profile("reported", deployment={"node_selector": selector}, declaration=injects)["statuses"]
    doubts = {entry["name"]: "gives containers CDI devices only if" in entry["problems"][-1] for entry in entries[1:]}
    assert doubts == {node.name: node is not nodes[0] for node in nodes}


def test_the_report_says_that_the_default_is_not_the_declared_one(cluster, namespace, of_profile):
    of_profile("deployed", IMAGINARY)

    def said(resource):
        problems = of_profile("reported", resource)["statuses"][0]["problems"]
        return [problem for problem in problems if "default configuration" in problem]

    assert said(IMAGINARY) == []
    assert "is not the declared one: run site.yml" in said(OTHER)[0]
    cluster.ask("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/node-device-plugin")
    assert f"ConfigMap {namespace}/node-device-plugin with the default configuration is missing" in said(IMAGINARY)[0]
