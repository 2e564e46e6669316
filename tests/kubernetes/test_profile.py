"""A profile in a cluster: the default of a DaemonSet for nodes that no inventory lists; against a real API server."""

from __future__ import annotations

import json
import pathlib
import subprocess
import types

import daemonset_steps
import pytest
import yaml
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import extended_resources, manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import parse_configuration
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.verification.proof_record import Record
from ansible_collections.nodedevices.kubernetes.plugins.action import node_status
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import deployed as deployed_settings
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import profile as profile_nodes
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import proof, rollout
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError
from daemonset_steps import IMAGINARY, LABEL, deployed

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
MERGE = "application/merge-patch+json"
READY = [{"op": "add", "path": "/status/conditions", "value": [{"type": "Ready", "status": "True"}]}]
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
    cluster.ask("PATCH", path, {"metadata": {"labels": labels}}, MERGE)
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


def of_profile(resource):
    """A profile's declaration of a resource: optional devices, without CDI unless the resource says so."""
    devices = [{**device, "required": False} for device in resource["devices"]]
    resources = [{"injection": "device_nodes", **resource, "devices": devices}]
    return {"configuration": {"cdi_owner": "plugin", "resources": resources}}


@pytest.fixture
def deploy(run):
    """Deploys a profile as its declaration is read: deploy(resource, selector)."""

    def deploy_profile(resource, selector):
        given = {"profile": True, "deployment": {"node_selector": selector}}
        configured = run("configured", declaration=of_profile(resource), **given)
        run("deployed", pending=[configured], **given)

    return deploy_profile


@pytest.fixture
def report(cluster, namespace):
    """Returns the entries of a profile in the report: report(selector, hosts=, resource=, **arguments)."""
    # The report has all stray labels of the cluster, also of nodes of earlier tests.
    for stray in cluster.ask("GET", f"/api/v1/nodes?labelSelector={LABEL}")["items"]:
        unlabelled = {"metadata": {"labels": {LABEL: None}}}
        cluster.ask("PATCH", f"/api/v1/nodes/{stray['metadata']['name']}", unlabelled, MERGE)

    def read_report(selector, hosts=(), resource=IMAGINARY, **given):
        action = object.__new__(node_status.ActionModule)
        deployment = {"image": "example.com/plugin:1", "namespace": namespace, "node_selector": selector}
        arguments = {"command": "/none", "kubeconfig": cluster.kubeconfig(), "deployment": deployment, **given}
        action._task = types.SimpleNamespace(args=arguments, check_mode=False)
        action._templar = types.SimpleNamespace(template=lambda value: value)
        variables = {"node_devices_profile": True, "node_devices_resources": [resource]}
        known = {"hostvars": dict(hosts), "ansible_play_hosts_all": list(hosts)}
        return action.run(None, {"inventory_hostname": "gpu-pool", **variables, **known})["statuses"]

    return read_report


def test_the_report_has_one_row_for_all_and_one_for_each_that_differs(cluster, deploy, report):
    selector = {"pool": "report"}
    nodes = [pool(cluster, **selector) for _ in range(3)]
    for node in nodes:
        node.patch("kubelet", READY)
    stray = pool(cluster, **{LABEL: "nobody"})
    deploy(IMAGINARY, selector)
    entries = report(selector)
    # No DaemonSet controller runs beside this API server, so no node has its pod.
    names = [*sorted(node.name for node in nodes), stray.name]
    assert [(entry["name"], entry["state"]) for entry in entries] == [(name, "wrong") for name in names]
    assert "has no pod on the node" in entries[0]["problems"][0]
    assert "label nodedevices.kubernetes/device-plugin=nobody" in entries[-1]["problems"][0]
    # A host of the play has its own row, also one whose node runs the service.
    named = {"host": {"node_devices_node_name": names[0], "node_devices_kubeconfig": cluster.kubeconfig()}}
    assert [entry["name"] for entry in report(selector, named)] == names[1:]


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
    assert profile_nodes.sample(daemon_set, 2, proven_first=False) == (tuple(sorted((nodes[0].name, nodes[2].name))), 3)


@pytest.fixture
def requests(monkeypatch):
    """The requests of plays, each as its method, what it is for, and whether it is a dry run."""
    found, ask = [], Api._ask

    def asked(self, method, place, query, *rest):
        found.append((method, place.resource, "dryRun" in query))
        return ask(self, method, place, query, *rest)

    monkeypatch.setattr(Api, "_ask", asked)
    return found


def test_a_run_that_changes_nothing_writes_nothing(pending, requests):
    def written():
        return [(method, kind) for method, kind, is_dry in requests if method != "GET" and not is_dry]

    pending(IMAGINARY)
    assert {("PATCH", "namespaces"), ("PATCH", "daemonsets.apps")} <= set(written())
    requests.clear()
    pending(IMAGINARY)
    assert ("PATCH", "daemonsets.apps", True) in requests
    assert written() == []


def test_a_report_asks_as_much_about_many_nodes_as_about_one(cluster, deploy, report, requests):
    selector, counts = {"pool": "many"}, []
    deploy(IMAGINARY, selector)
    for new in (1, 4):
        for _ in range(new):
            node = pool(cluster, pool="many")
            node.patch("kubelet", READY)
        requests.clear()
        entries = report(selector)
        counts.append((len(entries), len(requests)))
    # No node has a pod, so each entry has a reason that only the API server knows.
    assert counts == [(1, counts[0][1]), (5, counts[0][1])]


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
    cluster, namespace, deploy, report, read, monkeypatch
):
    selector = {"pool": "asked"}
    devices = [{"op": "add", "path": "/status/capacity", "value": {"cpu": "2", IMAGINARY["name"]: "1"}}]
    allocatable = [{"op": "add", "path": "/status/allocatable", "value": {"cpu": "2", IMAGINARY["name"]: "1"}}]
    nodes = sorted((pool(cluster, **selector) for _ in range(5)), key=lambda node: node.name)
    for node in nodes:
        node.patch("kubelet", [*READY, *devices, *allocatable])
    # A node of which the kubelet has taken the device away.
    nodes[4].patch("kubelet", [{"op": "add", "path": "/status/allocatable", "value": {"cpu": "2"}}])
    deploy(IMAGINARY, selector)
    running(cluster, namespace, nodes, read)
    wanted = manifests.sha256_of(read("/api/v1", "configmaps")["data"][manifests.DEFAULT])
    asked = []

    def ask(_api, pod):
        asked.append(pod["spec"]["nodeName"])
        return rollout.Running("b" * 64 if pod["spec"]["nodeName"] == nodes[0].name else wanted, version="1.0")

    monkeypatch.setattr(rollout, "ask_through_api", ask)
    of_all, other, without = report(selector, sample=2)
    assert sorted(asked) == [nodes[0].name, nodes[2].name, nodes[4].name]
    assert [entry["name"] for entry in (of_all, other, without)] == ["gpu-pool", nodes[0].name, nodes[4].name]
    # The other two were not asked.
    assert (of_all["members"], of_all["versions"]["plugin"]) == (3, {"unknown": 2, "1.0": 1})
    assert "the plugin runs with configuration bbbbbbbbbbbb" in other["problems"][0]
    assert without["plugin"]["configuration_sha256"] == wanted


def test_a_damaged_annotation_is_a_problem_of_its_node_only(cluster, deploy, report):
    selector = {"pool": "damaged"}
    node = pool(cluster, **selector)
    damaged = {"metadata": {"annotations": {extended_resources.ANNOTATION: "{"}}}
    cluster.ask("PATCH", f"/api/v1/nodes/{node.name}", damaged, MERGE)
    deploy(IMAGINARY, selector)
    (entry,) = report(selector)
    assert (entry["name"], entry["state"]) == (node.name, "wrong")
    assert "is damaged" in entry["problems"][0]


def test_a_runtime_whose_cdi_is_off_by_default_is_in_doubt_until_a_proof_shows_more(cluster, deploy, report):
    selector, by_cdi = {"pool": "doubt"}, {**IMAGINARY, "injection": "cdi"}
    runtime = {"op": "add", "path": "/status/nodeInfo/containerRuntimeVersion", "value": "containerd://1.7.28"}
    nodes = [pool(cluster, **selector) for _ in range(2)]
    for node in nodes:
        node.patch("kubelet", [*READY, runtime])
    deploy(by_cdi, selector)
    (resource,) = parse_configuration(of_profile(by_cdi)["configuration"]).resources
    record = Record({}, "example.com/plugin:1")
    record.note(resource, "containerd 1.7.28", proven=True)
    proven = {"metadata": {"annotations": {proof.RECORD: json.dumps(record.proven)}}}
    cluster.ask("PATCH", f"/api/v1/nodes/{nodes[0].name}", proven, MERGE)
    entries = report(selector, resource=by_cdi)
    doubts = {entry["name"]: "gives containers CDI devices only if" in entry["problems"][-1] for entry in entries}
    assert doubts == {nodes[0].name: False, nodes[1].name: True}


def test_the_report_says_that_the_default_is_not_the_declared_one(cluster, namespace, deploy, report):
    selector = {"pool": "differs"}
    deploy(IMAGINARY, selector)

    def said(resource):
        problems = report(selector, resource=resource)[0]["problems"]
        return [problem for problem in problems if "default configuration" in problem]

    assert said(IMAGINARY) == []
    assert "is not the declared one: run site.yml" in said(OTHER)[0]
    cluster.ask("DELETE", f"/api/v1/namespaces/{namespace}/configmaps/node-device-plugin")
    assert f"ConfigMap {namespace}/node-device-plugin with the default configuration is missing" in said(IMAGINARY)[0]


def inventory_of(*nodes, **more):
    return {node.name: {"device_plugin_mode": "daemonset", **more} for node in nodes}


def test_another_default_leaves_named_hosts_that_are_not_in_the_play_as_they_are(cluster, run, pending, read):
    """As with --limit of the profile: nobody has asked for another configuration of their nodes."""
    one, by_name, elsewhere, moves = (cluster.node({}) for _ in range(4))
    hosts = inventory_of(one, elsewhere, moves)
    hosts[elsewhere.name]["node_devices_kubeconfig"] = "/nowhere"
    # Its next play labels the node for another DaemonSet.
    hosts[moves.name]["device_plugin_deployment"] = {"name": "another"}
    hosts["rack"] = {"device_plugin_mode": "daemonset", "node_devices_node_name": by_name.name}
    hosts["gpu-pool"] = {"device_plugin_mode": "daemonset", "node_devices_profile": True}
    pending(IMAGINARY, dict.fromkeys((one, by_name), IMAGINARY))
    for node in (one, by_name, elsewhere, moves):
        run("selected", node)
    assert set(read("/api/v1", "configmaps")["data"]) == {manifests.DEFAULT}
    pending(OTHER, inventory=hosts)
    data = read("/api/v1", "configmaps")["data"]
    # A host of another cluster is a node of the same name, which nobody named in this one.
    assert set(data) == {manifests.DEFAULT, one.name, by_name.name}
    assert IMAGINARY["name"] in data[one.name]
    assert OTHER["name"] in data[manifests.DEFAULT]
    pending(None, {one: OTHER}, inventory=hosts)
    assert set(read("/api/v1", "configmaps")["data"]) == {manifests.DEFAULT, by_name.name}


def test_a_named_host_without_a_key_needs_the_profile_too(cluster, run, pending, read):
    node = cluster.node({})
    pending(IMAGINARY, {node: IMAGINARY})
    run("selected", node)
    assert set(read("/api/v1", "configmaps")["data"]) == {manifests.DEFAULT}
    of_profile, hosts = run("removed", profile=True), inventory_of(node)
    said = run("absent", pending=[of_profile], inventory=hosts)["msg"]
    assert f"still serves {node.name}, which have hosts of their own: uninstall these hosts first" in said
    run("absent", pending=[of_profile, run("removed", node)], inventory=hosts)
    assert read("/api/v1", "configmaps") is None


def test_a_host_that_leaves_a_pool_does_not_wait_for_the_pool_s_pod(cluster, run, pending, read, namespace):
    of_pool, node = {"node_selector": {"pool": "stays"}}, pool(cluster, pool="stays")
    pending(IMAGINARY, {node: OTHER}, deployment=of_pool)
    template = read("/apis/apps/v1", "daemonsets")["spec"]["template"]
    pod = {
        "metadata": {"name": "of-node", "labels": template["metadata"]["labels"]},
        "spec": {**template["spec"], "nodeName": node.name},
    }
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    assert run("removed", node, deployment=of_pool, timeout=1, api_only=True)["changed"] is True
    assert set(read("/api/v1", "configmaps")["data"]) == {manifests.DEFAULT}
    # Without the pool's labels, the pod ends.
    cluster.ask("PATCH", f"/api/v1/nodes/{node.name}", {"metadata": {"labels": {"pool": None}}}, MERGE)
    assert "pod of-node has not ended within 1 s" in run("removed", node, deployment=of_pool, timeout=1)["msg"]
    cluster.ask("DELETE", f"/api/v1/namespaces/{namespace}/pods/of-node?gracePeriodSeconds=0")


def test_a_broken_node_does_not_stop_an_uninstall(cluster, run, pending, read, monkeypatch):
    selector = {"pool": "broken"}
    nodes = sorted((pool(cluster, **selector) for _ in range(12)), key=lambda node: node.name)
    for node in nodes:
        node.patch("kubelet", READY)
    by_cdi = {**IMAGINARY, "injection": "cdi"}
    pending(by_cdi, deployment={"node_selector": selector})
    asked = []

    def refuse(_cluster, name, *_arguments):
        asked.append(name)
        if name != nodes[0].name:
            raise DeploymentError("its pod does not run")

    monkeypatch.setattr(rollout, "await_node", refuse)
    result = run("absent", pending=[run("removed", profile=True, deployment={"node_selector": selector})])
    assert asked == [node.name for node in nodes]
    names = ", ".join(node.name for node in nodes[1:11])
    assert f"CDI specs that the plugin wrote stay on node {names} and 1 more: its pod does not run" in str(result)
    assert read("/api/v1", "configmaps") is None


@pytest.mark.parametrize("sample", [0, -1, "many"])
def test_a_sample_of_no_size_is_refused(run, pending, sample):
    pending(IMAGINARY)
    said = run("ready", None, IMAGINARY, profile=True, sample=sample)["msg"]
    assert "sample: must be a whole number, 1 or more, not " in said


def test_a_host_never_writes_the_default(run, read):
    said = run("configured", types.SimpleNamespace(name=manifests.DEFAULT), IMAGINARY, api_only=True)["msg"]
    assert said == "worker1: node_devices_node_name: _default is no node's name: set it to the node's name"
    assert read("/api/v1", "configmaps") is None


def test_the_playbooks_for_a_pool_without_a_node(cluster, namespace, read, tmp_path):
    """By Ansible itself. Nothing connects to a host, and a host that has not joined does not stop the profile."""
    of_pool = {"name": "pool", "namespace": namespace, "node_selector": {"example.com/pool": "empty"}}
    hosts = {
        "pool-default": {"node_devices_profile": True, "device_plugin_deployment": of_pool},
        "not-joined": {"device_plugin_deployment": {**of_pool, "name": "named", "node_selector": {}}},
    }
    of_all = {
        "ansible_ssh_executable": "/nowhere/ssh",
        "device_plugin_mode": "daemonset",
        "node_devices_api_only": True,
        "node_devices_kubeconfig": cluster.kubeconfig(),
        "node_devices_resources": [{"name": "example.com/dev", "devices": ["/dev/null"]}],
    }

    def play(name, *arguments):
        (tmp_path / "hosts.yml").write_text(yaml.safe_dump({"node_devices": {"hosts": hosts, "vars": of_all}}))
        report = f"node_devices_report_dir={tmp_path / 'report'}"
        command = ["ansible-playbook", "-i", str(tmp_path / "hosts.yml"), f"playbooks/{name}.yml", "-e", report]
        done = subprocess.run([*command, *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=False)
        assert "UNREACHABLE" not in done.stdout
        recap = {line.split()[0]: line for line in done.stdout.partition("PLAY RECAP")[2].splitlines()[1:] if line}
        return done.returncode, " ".join((done.stdout + done.stderr).split()), recap

    code, said, recap = play("site", "--check")
    assert code == 0, said
    assert "changed=0" not in recap["pool-default"]
    assert read() is None
    code, said, recap = play("site")
    assert code == 0, said
    assert set(read("/api/v1", "configmaps", "pool")["data"]) == {manifests.DEFAULT}
    configuration = yaml.safe_load(read("/api/v1", "configmaps", "pool")["data"][manifests.DEFAULT])
    assert configuration["resources"][0]["devices"][0]["required"] is False
    code, said, recap = play("site")
    assert code == 0, said
    assert [" changed=0 " in line for line in recap.values()] == [True, True], said
    code, said, _recap = play("verify")
    assert code == 0, said
    assert "pool-default - - - - no nodes" in said
    assert "not-joined - - - - not joined" in said
    code, said, _recap = play("status", "--limit", "pool-default")
    assert code == 0, said
    assert "no node has these labels" in said
    # The DaemonSet of another inventory, so only the cluster knows it.
    arm = {**of_pool, "name": "arm", "node_selector": {"example.com/arch": "arm"}}
    hosts["pool-default"]["device_plugin_deployment"] = arm
    code, said, _recap = play("site")
    assert code == 2
    assert f"a node may have these labels and those of DaemonSet pool in namespace {namespace}" in said
    assert "no node was touched" in said
    assert read("/api/v1", "configmaps", "arm") is None
    hosts["pool-default"]["device_plugin_deployment"] = of_pool
    code, said, _recap = play("uninstall", "--check")
    assert code == 0, said
    assert read("/apis/apps/v1", "daemonsets", "pool") is not None
    code, said, _recap = play("uninstall")
    assert code == 0, said
    assert (read("/api/v1", "configmaps", "pool"), read("/apis/apps/v1", "daemonsets", "pool")) == (None, None)
