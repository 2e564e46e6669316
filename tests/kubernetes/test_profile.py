"""A profile in a cluster: the default of a DaemonSet for nodes that nobody named; against a real API server."""

from __future__ import annotations

import types

import daemonset_steps
import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import extended_resources, manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api
from ansible_collections.nodedevices.kubernetes.plugins.action import profile
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import deployed as deployed_settings
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import profile as profile_nodes
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import proof, rollout
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet
from daemonset_steps import IMAGINARY, LABEL, deployed

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

MERGE = "application/merge-patch+json"
READY = [{"op": "add", "path": "/status/conditions", "value": [{"type": "Ready", "status": "True"}]}]
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
    cluster.ask("PATCH", path, {"metadata": {"labels": labels}}, MERGE)
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
    nodes = [pool(cluster, **selector) for _ in range(3)]
    for node in nodes:
        node.patch("kubelet", READY)
    pool(cluster, **{LABEL: "nobody"})
    of_profile("deployed", IMAGINARY, deployment={"node_selector": selector})
    entries = of_profile("reported", deployment={"node_selector": selector})["statuses"]
    # No DaemonSet controller runs beside this API server, so no node has its pod.
    assert [(entry["name"], entry["state"]) for entry in entries] == [
        ("gpu-pool", "wrong"),
        *((node.name, "wrong") for node in nodes),
    ]
    assert entries[0]["members"] == 0
    assert "label nodedevices.kubernetes/device-plugin=nobody" in entries[0]["problems"][0]
    assert "has no pod on the node" in entries[1]["problems"][0]


def test_a_second_run_has_nothing_to_prove_and_a_verification_proves_other_nodes(cluster, namespace):
    selector = {"pool": "proven"}
    nodes = [pool(cluster, **selector) for _ in range(3)]
    for node in nodes:
        node.patch("kubelet", READY)
    proven = {"metadata": {"annotations": {proof.RECORD: '{"example.com/a": "%s"}' % ("a" * 64)}}}
    cluster.ask("PATCH", f"/api/v1/nodes/{nodes[1].name}", proven, MERGE)
    deployment = deployed_settings.parse({"namespace": namespace, "node_selector": selector})
    daemon_set = DaemonSet(Api.of(cluster.kubeconfig()), deployment)
    assert profile_nodes.sample(daemon_set, 1, proven_first=True) == ((nodes[1].name,), 3)
    assert profile_nodes.sample(daemon_set, 2, proven_first=False) == ((nodes[0].name, nodes[2].name), 3)


@pytest.fixture
def requests(monkeypatch):
    """The requests of plays, each as its method, what it is for, and whether it is a dry run."""
    found, ask = [], Api._ask

    def asked(self, method, place, query, *rest):
        found.append((method, place.resource, "dryRun" in query))
        return ask(self, method, place, query, *rest)

    monkeypatch.setattr(Api, "_ask", asked)
    return found


def test_a_run_that_changes_nothing_writes_nothing(of_profile, requests):
    # The fixture runs it twice.
    of_profile("deployed", IMAGINARY)
    half = requests.index(("GET", "configmaps", False), requests.index(("PATCH", "daemonsets.apps", False)))
    assert ("PATCH", "namespaces", False) in requests[:half]
    assert ("PATCH", "daemonsets.apps", True) in requests[half:]
    assert [request for request in requests[half:] if request[0] != "GET" and not request[2]] == []


def test_a_report_asks_as_much_about_many_nodes_as_about_one(cluster, of_profile, requests):
    deployment, counts = {"node_selector": {"pool": "many"}}, []
    of_profile("deployed", IMAGINARY, deployment=deployment)
    for new in (1, 4):
        for _ in range(new):
            node = pool(cluster, pool="many")
            node.patch("kubelet", READY)
        requests.clear()
        entries = of_profile("reported", deployment=deployment)["statuses"]
        counts.append((len(entries), len(requests)))
    # No node has a pod, so each entry has a reason that only the API server knows.
    assert counts == [(2, counts[0][1]), (6, counts[0][1])]


def running(cluster, namespace, nodes, read):
    """The nodes have pods of the current DaemonSet, as its controller and the kubelets make them."""
    daemon_set = read("/apis/apps/v1", "daemonsets")
    path = f"/namespaces/{namespace}"
    observed = {"status": {"observedGeneration": daemon_set["metadata"]["generation"]}}
    of_status = f"/apis/apps/v1{path}/daemonsets/node-device-plugin/status"
    cluster.ask("PATCH", of_status, observed, MERGE)
    owner = {key: daemon_set[key] for key in ("apiVersion", "kind")} | {
        key: daemon_set["metadata"][key] for key in ("name", "uid")
    }
    labels = {**daemon_set["spec"]["selector"]["matchLabels"], "controller-revision-hash": "1"}
    revision = {"metadata": {"name": "one", "labels": labels, "ownerReferences": [owner]}, "revision": 1, "data": {}}
    cluster.ask("POST", f"/apis/apps/v1{path}/controllerrevisions", revision)
    cluster.ask("POST", f"/api/v1{path}/serviceaccounts", {"metadata": {"name": "default"}})
    for node in nodes:
        spec = {"nodeName": node.name, "containers": [{"name": "plugin", "image": "example.com/plugin:1"}]}
        pod = {"metadata": {"name": f"plugin-{node.name}", "labels": labels}, "spec": spec}
        cluster.ask("POST", f"/api/v1{path}/pods", pod)
        state = {"name": "plugin", "image": "i", "imageID": "i", "restartCount": 0, "ready": True, "started": True}
        status = {"containerStatuses": [{**state, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]}
        cluster.ask("PATCH", f"/api/v1{path}/pods/{pod['metadata']['name']}/status", {"status": status}, MERGE)


def test_a_report_asks_the_plugins_of_a_sample_and_of_nodes_that_differ(
    cluster, namespace, of_profile, read, monkeypatch
):
    selector = {"pool": "asked"}
    deployment = {"node_selector": selector}
    devices = [{"op": "add", "path": "/status/capacity", "value": {"cpu": "2", IMAGINARY["name"]: "1"}}]
    allocatable = [{"op": "add", "path": "/status/allocatable", "value": {"cpu": "2", IMAGINARY["name"]: "1"}}]
    nodes = [pool(cluster, **selector) for _ in range(5)]
    for node in nodes:
        node.patch("kubelet", [*READY, *devices, *allocatable])
    # A node of which the kubelet has taken the device away.
    nodes[4].patch("kubelet", [{"op": "add", "path": "/status/allocatable", "value": {"cpu": "2"}}])
    of_profile("deployed", IMAGINARY, deployment=deployment, sample=0)
    running(cluster, namespace, nodes, read)
    wanted = manifests.sha256_of(read("/api/v1", "configmaps")["data"][manifests.DEFAULT])
    asked = []

    def ask(_api, pod):
        asked.append(pod["spec"]["nodeName"])
        return rollout.Running("b" * 64 if pod["spec"]["nodeName"] == nodes[0].name else wanted, version="1.0")

    monkeypatch.setattr(rollout, "ask_through_api", ask)
    declaration = {
        "configuration": {"resources": [IMAGINARY]},
        "resources": [{"name": IMAGINARY["name"]}],
        "needs_cdi": False,
    }
    entries = of_profile("reported", deployment=deployment, declaration=declaration, sample=2)["statuses"]
    # Twice, as the fixture runs everything.
    assert sorted(asked[: len(asked) // 2]) == [nodes[0].name, nodes[2].name, nodes[4].name]
    assert [entry["name"] for entry in entries] == ["gpu-pool", nodes[0].name, nodes[4].name]
    of_all, other, without = entries
    # Nodes of other tests may have stray labels, whose sentences come first.
    assert of_all["problems"][-2:] == [
        "2 of 5 nodes differ, and have rows of their own",
        "of 2 of 5 nodes, the report shows only node object and pod, not the configuration and the reasons of the "
        "plugin (verification_sample)",
    ]
    assert (of_all["members"], of_all["plugin"]["version"]) == (3, "1.0")
    assert "the plugin runs with configuration bbbbbbbbbbbb" in other["problems"][0]
    assert without["plugin"]["configuration_sha256"] == wanted


def test_a_damaged_annotation_is_a_problem_of_its_node_only(cluster, of_profile):
    selector = {"pool": "damaged"}
    node = pool(cluster, **selector)
    damaged = {"metadata": {"annotations": {extended_resources.ANNOTATION: "{"}}}
    cluster.ask("PATCH", f"/api/v1/nodes/{node.name}", damaged, MERGE)
    of_profile("deployed", IMAGINARY, deployment={"node_selector": selector})
    _of_all, entry = of_profile("reported", deployment={"node_selector": selector})["statuses"]
    assert (entry["name"], entry["state"]) == (node.name, "wrong")
    assert "is damaged" in entry["problems"][0]
