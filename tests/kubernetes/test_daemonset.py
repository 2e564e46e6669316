"""The plugin's DaemonSet in a cluster, step by step, against a real API server."""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import types
import urllib.error
import urllib.request

import daemonset_steps
import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig, manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, ApiError, Place
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.manifests import (
    files as manifest_files,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import parse_configuration
from ansible_collections.nodedevices.kubernetes.plugins.action import daemonset
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import namespace as namespaces
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import other_daemonsets, proof, rollout
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.deployed import parse
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError
from daemonset_steps import IMAGINARY, LABEL, deployed, labels

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

SERIAL = {"name": "devices.example.com/serial", "discover": {"paths": ["/dev/serial/by-id/*"]}}
MONITORING = "/apis/monitoring.coreos.com/v1"
namespace, run, read = daemonset_steps.namespace, daemonset_steps.run, daemonset_steps.read


def host_paths(daemon_set):
    volumes = daemon_set["spec"]["template"]["spec"]["volumes"]
    return [volume["hostPath"]["path"] for volume in volumes if "hostPath" in volume]


def test_a_node_after_the_other(cluster, run, read):
    one, other = cluster.node({}), cluster.node({})
    pending, result = deployed(run, one, other)
    assert [each["changed"] for each in pending] == [True, True]
    assert [each.split()[0] for each in pending[0]["what"]] == ["namespace", "configmap"]
    assert [each.split()[0] for each in pending[1]["what"]] == ["configmap"]
    assert result["what"][0].startswith("daemonset")
    assert read("/api/v1")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert set(read("/api/v1", "configmaps")["data"]) == {one.name, other.name}
    spec = read("/apis/apps/v1", "daemonsets")["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {LABEL: "node-device-plugin"}
    assert run("selected", one)["changed"] is True
    assert labels(one)[LABEL] == "node-device-plugin"
    assert LABEL not in labels(other)


def test_pods_overlap_once_every_node_of_the_daemon_set_has_a_kubelet_that_takes_both(cluster, run, read):
    def version(node, kubelet):
        node.patch("kubelet", [{"op": "replace", "path": "/status/nodeInfo/kubeletVersion", "value": kubelet}])

    def surge():
        return read("/apis/apps/v1", "daemonsets")["spec"]["updateStrategy"]["rollingUpdate"]

    one, other, elsewhere = cluster.node({}), cluster.node({}), cluster.node({})
    for node, kubelet in ((one, "v1.37.2"), (other, "v1.36.3"), (elsewhere, "v1.30.0")):
        version(node, kubelet)
    deployed(run, one, other)
    assert surge() == {"maxSurge": 0, "maxUnavailable": "10%"}
    version(other, "v1.37.0")
    deployed(run, one, other)
    assert surge() == {"maxSurge": 1, "maxUnavailable": 0}
    deployed(run, one, other, deployment={"overlap": "never"})
    assert surge() == {"maxSurge": 0, "maxUnavailable": "10%"}


def test_an_update_that_needs_a_second_slot_is_refused_where_the_node_has_none(cluster, run, read):
    node, other, down = (cluster.node({"pods": "0"}) for _ in range(3))
    for each in (node, other, down):
        each.patch("kubelet", [{"op": "replace", "path": "/status/nodeInfo/kubeletVersion", "value": "v1.37.2"}])
    ready = [{"type": "Ready", "status": "True"}]
    for each in (node, other):
        each.patch("kubelet", [{"op": "add", "path": "/status/conditions", "value": ready}])
    deployed(run, node, other, down)
    run("selected", node)
    # It gets no pod for the time being.
    run("selected", down)
    before = read("/apis/apps/v1", "daemonsets")
    _pending, unchanged = deployed(run, node, other, down)
    assert unchanged["changed"] is False
    _pending, refused = deployed(run, node, other, down, deployment={"resources": {"requests": {"cpu": "20m"}}})
    said = f"node {node.name} has no free pod slot for the plugin's new pod, which starts before the old one ends"
    assert said in refused["msg"]
    assert read("/apis/apps/v1", "daemonsets")["spec"] == before["spec"]
    for way_out in ({"overlap": "never"}, {"priority_class": ""}):
        _pending, result = deployed(
            run, node, other, down, deployment={"resources": {"requests": {"cpu": "30m"}}, **way_out}
        )
        assert result["changed"] is True


def test_check_mode_says_the_same_and_changes_nothing(cluster, run, read):
    node = cluster.node({})
    pending, foreseen = deployed(run, node, check=True)
    selected = run("selected", node, check=True)
    assert read("/api/v1") is None
    assert LABEL not in labels(node)
    (done,), deploy = deployed(run, node)
    assert pending[0]["what"] == done["what"]
    assert (foreseen["what"], foreseen["diff"]) == (deploy["what"], deploy["diff"])
    assert selected["what"] == run("selected", node)["what"]
    _pending, nothing = deployed(run, node, check=True)
    assert nothing["changed"] is False
    gone = run("removed", node, check=True)
    assert gone["changed"] is True
    assert node.name in read("/api/v1", "configmaps")["data"]
    assert run("absent", check=True, pending=[gone])["changed"] is True
    assert read("/apis/apps/v1", "daemonsets") is not None


def test_a_play_that_knows_one_node_leaves_the_others_alone(cluster, run, read):
    one, other = cluster.node({}), cluster.node({})
    deployed(run, one, other)
    before = read("/api/v1", "configmaps")["data"]
    pending = [run("configured", other, SERIAL)]
    result = run("deployed", pending=pending, nodes=[one.name, other.name])
    data = read("/api/v1", "configmaps")["data"]
    assert data[one.name] == before[one.name]
    assert data[other.name] == manifests.configuration_text(parse_configuration({"resources": [SERIAL]}))
    # What the other one needs of its host, all pods get.
    assert result["changed"] is True
    assert "/dev" in host_paths(read("/apis/apps/v1", "daemonsets"))
    run("deployed", pending=[run("configured", one, IMAGINARY)], nodes=[one.name, other.name])
    assert "/dev" in host_paths(read("/apis/apps/v1", "daemonsets"))


def test_an_unchanged_configuration_is_not_written_again(cluster, run, monkeypatch):
    node = cluster.node({})
    deployed(run, node)

    def refuse(self, method, *_rest, **_options):
        assert method == "GET"

    ask = daemonset.Api._ask
    monkeypatch.setattr(daemonset.Api, "_ask", lambda *given: refuse(*given) or ask(*given))
    # The namespace is ours, and held to what it should be.
    monkeypatch.setattr(namespaces.Namespace, "make", lambda self: [])
    assert run("configured", node, IMAGINARY)["changed"] is False


def test_another_configuration_is_no_other_pod(cluster, run, read):
    node = cluster.node({})
    deployed(run, node)
    before = read("/apis/apps/v1", "daemonsets")["metadata"]["generation"]
    pending, result = deployed(run, node, resources=({**IMAGINARY, "replicas": 2},))
    assert pending[0]["changed"] is True
    assert '"replicas": 2' in pending[0]["diff"][0]["after"]
    assert '"replicas"' not in pending[0]["diff"][0]["before"]
    assert result["changed"] is False
    assert read("/apis/apps/v1", "daemonsets")["metadata"]["generation"] == before


def test_an_selinux_type_comes_and_goes(cluster, run, read):
    def types():
        (container,) = read("/apis/apps/v1", "daemonsets")["spec"]["template"]["spec"]["containers"]
        return container["securityContext"].get("seLinuxOptions")

    node = cluster.node({})
    deployed(run, node)
    assert types() is None
    result = deployed(run, node, deployment={"selinux_type": "container_device_plugin_t"})[1]
    assert (result["changed"], types()) == (True, {"type": "container_device_plugin_t"})
    result = deployed(run, node)[1]
    assert (result["changed"], types()) == (True, None)


def test_what_the_inventory_has_no_longer_goes(cluster, run, read):
    one, other, lost = cluster.node({}), cluster.node({}), cluster.node({})
    deployed(run, one, other, lost)
    for node in (one, other, lost):
        run("selected", node)
    lost.delete()
    run("deployed", pending=[run("configured", one, IMAGINARY)], nodes=[one.name])
    assert set(read("/api/v1", "configmaps")["data"]) == {one.name}
    assert LABEL not in labels(other)
    assert LABEL in labels(one)


def test_nobody_goes_while_it_is_not_known_who_has_left(cluster, run, read):
    """In a limited play, and where the name of a host's node is unknown."""
    one, other = cluster.node({}), cluster.node({})
    deployed(run, one, other)
    run("selected", other)
    run("deployed", pending=[run("configured", one, IMAGINARY)])
    assert set(read("/api/v1", "configmaps")["data"]) == {one.name, other.name}
    assert LABEL in labels(other)


def test_removed_with_the_last_node_and_nothing_is_left(cluster, run, read, namespace):
    one, other = cluster.node({}), cluster.node({})
    deployed(run, one, other)
    # What controllers put into every namespace.
    for name in ("kube-root-ca.crt", "openshift-service-ca.crt"):
        cluster.ask("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": name}})
    secret = {
        "metadata": {"name": "default-dockercfg"},
        "type": "kubernetes.io/dockercfg",
        "data": {".dockercfg": "e30="},
    }
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/secrets", secret)
    run("selected", one)
    assert run("removed", one)["changed"] is True
    assert LABEL not in labels(one)
    assert run("absent")["changed"] is False
    assert set(read("/api/v1", "configmaps")["data"]) == {other.name}
    run("removed", other)
    result = run("absent")
    assert [each.split()[0] for each in result["what"]] == ["daemonset", "configmap", "namespace"]
    assert read("/apis/apps/v1", "daemonsets") is None
    # Without its controller a namespace is not emptied, but it is on its way.
    assert read("/api/v1")["status"]["phase"] == "Terminating"


@pytest.mark.parametrize("lost", [True, False])
def test_an_uninstall_takes_out_what_the_inventory_has_no_longer(cluster, run, read, lost):
    """Else a node that left beforehand would keep everything, for nobody."""
    one, other = cluster.node({}), cluster.node({})
    deployed(run, one, other)
    run("selected", other)
    if lost:
        other.delete()
    pending = [run("removed", one)]
    assert run("absent", pending=pending)["changed"] is False
    assert run("absent", pending=pending, nodes=[one.name, other.name])["changed"] is False
    foreseen = run("absent", pending=pending, nodes=[one.name], check=True)
    result = run("absent", pending=pending, nodes=[one.name])
    assert result["what"] == foreseen["what"]
    assert [each.split()[0] for each in result["what"]] == [
        *([] if lost else ["label"]),
        *("configmap", "daemonset", "configmap", "namespace"),
    ]
    assert lost or LABEL not in labels(other)
    assert read("/apis/apps/v1", "daemonsets") is None


@pytest.mark.parametrize("ends", [True, False])
def test_a_namespace_that_is_being_deleted(cluster, run, read, namespace, monkeypatch, ends):
    node = cluster.node({})
    deployed(run, node)
    run("removed", node)
    run("absent")
    monkeypatch.setattr(namespaces, "_PAUSE", 0.02)
    monkeypatch.setattr(namespaces, "_ENDING", 10 if ends else 0.1)

    def end():
        # What the namespace's controller does once it is empty.
        path = f"/api/v1/namespaces/{namespace}"
        cluster.ask("PUT", f"{path}/finalize", {**cluster.ask("GET", path), "spec": {"finalizers": []}})

    ending = threading.Timer(0.3, end)
    if ends:
        ending.start()
    result = run("configured", node, IMAGINARY)
    if ends:
        ending.join()
        assert result["changed"] is True
        assert set(read("/api/v1", "configmaps")["data"]) == {node.name}
    else:
        assert result["msg"].startswith(
            f"worker1: namespace {namespace} is still being deleted: run again when it is gone"
        )


def test_what_was_proven_goes_with_the_nodes_part(cluster, run):
    node = cluster.node({})
    deployed(run, node)
    api = Api(kubeconfig.read(cluster.kubeconfig()))
    record = {IMAGINARY["name"]: "a" * 64}
    proof.write_record(api, node.name, record)
    assert proof.read_record(node.read()) == record
    foreseen = run("removed", node, check=True)["what"]
    assert proof.read_record(node.read()) == record
    assert run("removed", node)["what"] == foreseen
    assert f"annotation nodedevices.kubernetes/proven of node {node.name}" in foreseen
    assert node.annotations == {"of": "others"}


def _pod_of(monkeypatch, ends):
    """A pod that runs on every node, as far as a rollout looks. ends: what waiting for its plugin comes to."""
    monkeypatch.setattr(rollout, "newest", lambda cluster, node: {"status": {"containerStatuses": [{"started": True}]}})
    monkeypatch.setattr(rollout, "await_node", ends)


def test_where_only_the_api_reaches_the_plugin_tidies_up_before_it_goes(cluster, run, read, monkeypatch):
    node, seen = cluster.node({}), []
    (configured,), _result = deployed(run, node, api_only=True)
    run("selected", node)

    def tidied(daemon_set, name, sha256, ask, timeout):
        text = daemon_set.texts()[name]
        seen.append((manifests.sha256_of(text) == sha256, manifests.read_configuration_text(text).resources))

    _pod_of(monkeypatch, tidied)
    foreseen = run("removed", node, check=True, api_only=True)
    assert seen == []
    removed = run("removed", node, api_only=True)
    assert seen == [(True, ())]
    assert (removed["what"], removed["diff"]) == (foreseen["what"], foreseen["diff"])
    assert configured["text"] in [each["before"] for each in removed["diff"]]
    assert "warnings" not in removed
    assert not read("/api/v1", "configmaps").get("data")


def test_a_plugin_that_cannot_tidy_up_is_taken_away_all_the_same(cluster, run, read, monkeypatch):
    one, other = cluster.node({}), cluster.node({})
    deployed(run, one, other, api_only=True)
    run("selected", one)
    run("selected", other)
    head = "worker1: CDI specs that the plugin wrote stay on the node: "
    assert run("removed", one, api_only=True)["warnings"] == [f"{head}its pod does not run"]

    def refused(*_given):
        raise DeploymentError("within 1 s it is not ready")

    _pod_of(monkeypatch, refused)
    assert run("removed", other, api_only=True)["warnings"] == [f"{head}within 1 s it is not ready"]
    assert not read("/api/v1", "configmaps").get("data")


def test_what_others_have_in_our_namespace_keeps_it(cluster, run, read, namespace):
    node = cluster.node({})
    deployed(run, node)
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "theirs"}})
    run("removed", node)
    run("absent")
    assert read("/apis/apps/v1", "daemonsets") is None
    assert read("/api/v1")["status"]["phase"] == "Active"


def _of(name):
    container = {"name": "a", "image": "a"}
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"a": name}},
            "template": {"metadata": {"labels": {"a": name}}, "spec": {"containers": [container]}},
        },
    }


@pytest.mark.parametrize(
    ("path", "content"),
    [
        # One of theirs need not have a pod anywhere.
        ("apis/apps/v1/{}/daemonsets", _of("theirs")),
        ("apis/apps/v1/{}/deployments", _of("theirs")),
        ("apis/rbac.authorization.k8s.io/v1/{}/roles", {"metadata": {"name": "theirs"}, "rules": []}),
        ("apis/networking.k8s.io/v1/{}/networkpolicies", {"metadata": {"name": "theirs"}, "spec": {"podSelector": {}}}),
        ("api/v1/{}/serviceaccounts", {"metadata": {"name": "theirs"}}),
        ("api/v1/{}/resourcequotas", {"metadata": {"name": "theirs"}, "spec": {"hard": {"pods": "9"}}}),
        # A pod of a DaemonSet that is not ours, whose own object this user cannot see.
        (
            "api/v1/{}/pods",
            {
                "metadata": {
                    "name": "theirs-1",
                    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "theirs", "uid": "1"}],
                },
                "spec": {"containers": [{"name": "a", "image": "a"}], "automountServiceAccountToken": False},
            },
        ),
    ],
)
def test_what_makes_pods_of_others_keeps_it(cluster, run, read, namespace, path, content):
    node = cluster.node({})
    deployed(run, node)
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    cluster.ask("POST", "/" + path.format(f"namespaces/{namespace}"), content)
    run("removed", node)
    run("absent")
    assert read("/api/v1")["status"]["phase"] == "Active"


def test_a_custom_resource_of_others_keeps_it(cluster, run, read, namespace):
    group = "theirs.example.com"
    cluster.ask(
        "POST",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"things.{group}"},
            "spec": {
                "group": group,
                "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [
                    {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
                ],
            },
        },
    )
    node = cluster.node({})
    deployed(run, node)
    deadline = time.monotonic() + 60
    thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "theirs"}}
    while True:
        try:
            cluster.ask("POST", f"/apis/{group}/v1/namespaces/{namespace}/things", thing)
            break
        except urllib.error.HTTPError:
            # The server serves a new kind after a moment.
            assert time.monotonic() < deadline
            time.sleep(0.2)
    run("removed", node)
    run("absent")
    assert read("/api/v1")["status"]["phase"] == "Active"


def test_a_namespace_that_was_there_before_stays_as_it_is(cluster, run, read, namespace):
    node = cluster.node({})
    made = {"metadata": {"name": namespace, "labels": {"of": "others"}}}
    cluster.ask("POST", "/api/v1/namespaces", made)
    deployed(run, node)
    assert "app.kubernetes.io/managed-by" not in read("/api/v1")["metadata"]["labels"]
    run("removed", node)
    run("absent")
    assert read("/api/v1")["status"]["phase"] == "Active"


@pytest.mark.parametrize("kinds", ["configmaps", "daemonsets"])
def test_what_others_have_under_our_name_stays_as_it_is(cluster, run, read, namespace, kinds):
    node = cluster.node({})
    cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    group = {"configmaps": "/api/v1", "daemonsets": "/apis/apps/v1"}[kinds]
    content = {"configmaps": {"metadata": {"name": "node-device-plugin"}, "data": {"a": "b"}}}.get(kinds)
    path = f"{group}/namespaces/{namespace}/{kinds}"
    before = cluster.ask("POST", path, content or _of("node-device-plugin"))
    for check in (True, False):
        result = run("configured", node, IMAGINARY, check=check)
        assert result["msg"] == (
            f"worker1: {kinds[:-1]} node-device-plugin in namespace {namespace} belongs to others, because it has no "
            "label app.kubernetes.io/managed-by=nodedevices: set another name or namespace in "
            "device_plugin_deployment, or delete it first"
        )
    # Nor does a deployment of before take it over, or an uninstall take it away.
    pending = [{"host": "a", "node": node.name, "text": "", "kubeconfig": cluster.kubeconfig()}]
    run("deployed", pending=pending if kinds == "daemonsets" else [], nodes=[node.name])
    assert run("removed", node)["changed"] is False
    assert run("absent")["changed"] is False
    assert read(group, kinds) == before


def test_another_plugin_on_a_node_that_only_the_api_reaches(cluster, run, read, monkeypatch):
    name = IMAGINARY["name"]
    node = cluster.node({"cpu": "2"})
    monkeypatch.setattr(other_daemonsets, "_PAUSE", 0.02)
    monkeypatch.setattr(other_daemonsets, "_TOLD", 0.1)
    # A number that somebody patched is no plugin's.
    node.set_capacity("kubectl", "example.com/fixed", "3")
    with node.kubelet():
        node.set_capacity("kubelet", name, "1")
        while name not in node.read()["status"].get("allocatable", {}):
            time.sleep(0.02)
        fixed = {"name": "example.com/fixed", "devices": [{"id": "fixed"}], "env": {"FIXED": "x"}}
        for check in (True, False):
            result = run("configured", node, IMAGINARY, fixed, check=check, api_only=True)
            assert result["msg"] == (
                f"worker1: another device plugin already serves {name} on node {node.name}, as its node object shows: "
                "remove that plugin first, or set device_plugin_takeover: true and remove it right after the run"
            )
        assert read("/api/v1") is None
        assert run("configured", node, fixed, api_only=True)["changed"] is True
        # From here on it is ours.
        assert run("configured", node, IMAGINARY, api_only=True, takeover=True)["changed"] is True
        assert run("configured", node, IMAGINARY, api_only=True)["changed"] is False


def test_a_plugin_that_has_just_gone_is_waited_for(cluster, run, monkeypatch):
    node = cluster.node({"cpu": "2"})
    monkeypatch.setattr(other_daemonsets, "_PAUSE", 0.02)
    node.set_capacity("kubelet", IMAGINARY["name"], "1")
    node.patch("kubelet", [{"op": "add", "path": "/status/allocatable", "value": {IMAGINARY["name"]: "1"}}])
    gone = {"op": "add", "path": "/status/allocatable", "value": {IMAGINARY["name"]: "0"}}
    ending = threading.Timer(0.3, node.patch, ("kubelet", [gone]))
    ending.start()
    assert run("configured", node, IMAGINARY, api_only=True)["changed"] is True
    ending.join()


@pytest.fixture
def prometheus_operator(cluster):
    """What of it an API server knows: its kinds. Their content is anything here."""
    definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    kinds = {"podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule"}
    for plural, kind in kinds.items():
        names = {"plural": plural, "singular": kind.lower(), "kind": kind}
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": anything}}
        spec = {"group": "monitoring.coreos.com", "names": names, "scope": "Namespaced", "versions": [version]}
        metadata = {"name": f"{plural}.monitoring.coreos.com"}
        cluster.ask("POST", definitions, {"metadata": metadata, "spec": spec})
    deadline = time.monotonic() + 30
    for plural in kinds:
        while time.monotonic() < deadline:
            with contextlib.suppress(urllib.error.HTTPError):
                cluster.ask("GET", f"{MONITORING}/{plural}")
                break
            time.sleep(0.05)
    yield
    for plural in kinds:
        cluster.ask("DELETE", f"{definitions}/{plural}.monitoring.coreos.com")
        while time.monotonic() < deadline + 30:
            try:
                cluster.ask("GET", f"{MONITORING}/{plural}")
            except urllib.error.HTTPError:
                break
            time.sleep(0.05)


@pytest.mark.usefixtures("prometheus_operator")
def test_monitors_come_and_go_and_those_of_others_stay(cluster, run, read, namespace):
    node = cluster.node({})
    both = {"pod_monitor": True, "alert_rules": True, "monitoring_labels": {"release": "prometheus"}}
    _pending, result = deployed(run, node, deployment=both)
    assert [each.split()[0] for each in result["what"]] == ["daemonset", "podmonitor", "prometheusrule"]
    monitor = read(MONITORING, "podmonitors")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == "http"
    _pending, result = deployed(run, node)
    assert [each.split()[0] for each in result["what"]] == ["podmonitor", "prometheusrule"]
    assert read(MONITORING, "podmonitors") is None

    path = f"{MONITORING}/namespaces/{namespace}/podmonitors"
    theirs = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "spec": {"of": "others"}}
    before = cluster.ask("POST", path, {**theirs, "metadata": {"name": "node-device-plugin"}})
    _pending, result = deployed(run, node)
    assert result["changed"] is False
    _pending, result = deployed(run, node, deployment=both)
    says = f"worker1: podmonitor node-device-plugin in namespace {namespace} belongs to others"
    assert result["msg"].startswith(says)
    run("removed", node)
    run("absent")
    assert read("/apis/apps/v1", "daemonsets") is None
    assert read(MONITORING, "podmonitors") == before


@pytest.mark.parametrize("check", [False, True])
def test_a_namespace_that_refuses_hostpath(cluster, run, read, namespace, check):
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace, "labels": restricted}})
    result = run("configured", cluster.node({}), IMAGINARY, check=check)
    assert result["msg"].startswith(f"worker1: namespace {namespace} belongs to others and enforces Pod Security")
    assert read("/api/v1", "configmaps") is None


@pytest.mark.parametrize("check", [False, True])
def test_a_namespace_that_says_nothing_in_a_cluster_that_refuses_hostpath(cluster, run, read, namespace, check):
    """As in real.py: what the API server enforces by itself stands in no object."""
    cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    result = run("configured", cluster.node({}), IMAGINARY, check=check)
    assert result["msg"].startswith(
        f"worker1: namespace {namespace} belongs to others and enforces Pod Security level baseline, which forbids"
    )
    assert read("/api/v1", "configmaps") is None
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}
    cluster.ask("PATCH", f"/api/v1/namespaces/{namespace}", label, "application/merge-patch+json")
    assert run("configured", cluster.node({}), IMAGINARY, check=check)["changed"] is True


def test_a_cluster_without_the_prometheus_operator(cluster, run):
    node = cluster.node({})
    _pending, result = deployed(run, node, deployment={"pod_monitor": True})
    assert result["msg"] == (
        "worker1: the cluster does not serve PodMonitors (monitoring.coreos.com/v1): install the Prometheus "
        "operator, or remove pod_monitor and alert_rules from device_plugin_deployment"
    )


def test_hosts_that_have_daemonsets_of_their_own(cluster, run, read):
    one, other = cluster.node({}), cluster.node({})
    second = {"name": "second"}
    # What one DaemonSet could not have both of.
    settings = [{"resources": [IMAGINARY]}, {"resources": [IMAGINARY], "kubelet_root_dir": "/srv/kubelet"}]
    pending = [
        run("configured", one, declaration={"configuration": settings[0]}),
        run("configured", other, declaration={"configuration": settings[1]}, deployment=second),
    ]
    result = run("deployed", pending=pending, nodes=[one.name, other.name])
    assert [each.split()[:2] for each in result["what"]] == [
        ["daemonset", "node-device-plugin"],
        ["daemonset", "second"],
    ]
    assert "/srv/kubelet/pod-resources" in host_paths(read("/apis/apps/v1", "daemonsets", "second"))
    removed = [run("removed", one), run("removed", other, deployment=second)]
    run("absent", pending=removed)
    assert read("/apis/apps/v1", "daemonsets") is None
    assert read("/apis/apps/v1", "daemonsets", "second") is None


def test_a_cluster_that_is_away_keeps_no_other_from_being_deployed(cluster, run, read, unused_server):
    node = cluster.node({})
    pending = [run("configured", node, IMAGINARY)]
    away = {"host": "worker2", "node": "b", "text": "", "kubeconfig": cluster.kubeconfig(server=unused_server)}
    result = run("deployed", pending=[away, *pending], nodes=[node.name])
    assert result["msg"].startswith(f"worker2: the API server {unused_server} does not answer")
    assert read("/apis/apps/v1", "daemonsets") is not None


@pytest.fixture(params=["one kubeconfig", "two kubeconfigs"])
def kubeconfigs(request, cluster):
    """Of two hosts in one cluster, which have one in common, or each its own, by another address."""
    one = cluster.kubeconfig()
    return one, one if request.param == "one kubeconfig" else cluster.kubeconfig(server=f"{cluster.server}/")


def test_hosts_that_differ_in_what_a_daemonset_has_once(cluster, run, read, kubeconfigs):
    one, other = cluster.node({}), cluster.node({})
    pending = [
        run("configured", one, IMAGINARY, kubeconfig=kubeconfigs[0]),
        run("configured", other, IMAGINARY, kubeconfig=kubeconfigs[1], deployment={"priority_class": ""}),
    ]
    pending[1]["host"] = "worker2"
    result = run("deployed", pending=pending, nodes=[one.name, other.name])
    assert result["msg"] == (
        "worker1, worker2: device_plugin_deployment.priority_class: is '' for worker2, but 'system-node-critical' "
        "for worker1: all hosts of a DaemonSet need the same value, so set it, or another "
        "device_plugin_deployment.name for one of them"
    )
    assert read("/apis/apps/v1", "daemonsets") is None


def test_clusters_that_do_not_say_who_they_are(cluster, run, unused_server):
    """By their address; and a kubeconfig that cannot be read is a matter of its own host."""
    node = cluster.node({})
    done = run("configured", node, IMAGINARY)
    away = [{**done, "host": host, "kubeconfig": cluster.kubeconfig(server=unused_server)} for host in ("a", "b")]
    unread = {**done, "host": "c", "kubeconfig": "/nonexistent"}
    lines = run("deployed", pending=[done, *away, unread], nodes=[node.name])["msg"].splitlines()
    assert lines[0].startswith(f"a, b: the API server {unused_server} does not answer")
    assert lines[1:] == ["c: /nonexistent: No such file or directory"]


def test_what_a_pod_cannot_do_is_said_before_anything_is_written(cluster, run, read):
    result = run("configured", cluster.node({}), {**SERIAL, "health": {"open": True}})
    assert "an unprivileged pod cannot open devices of its host" in result["msg"]
    assert read("/api/v1") is None


def test_a_node_that_the_cluster_does_not_know(cluster, run, read):
    result = run("configured", types.SimpleNamespace(name="Worker-1"), IMAGINARY)
    assert result["msg"] == (
        "worker1: the cluster has no node Worker-1: set node_devices_node_name to its name there, "
        "or join the node first"
    )
    assert read("/api/v1") is None


def test_more_than_a_config_map_takes(cluster, run, read):
    one, other = cluster.node({}), cluster.node({})
    # The second alone would fit.
    devices = [{"id": f"dev-{number}", "properties": {"value": "x" * 6000}} for number in range(100)]
    large = {"name": "example.com/large", "devices": devices, "env": {"LARGE_{index}": "{value}"}}
    for node in (one, other):
        result = run("configured", node, large)
    assert re.fullmatch(
        r"worker1: nodes: have configurations of 12\d{5} bytes, but a ConfigMap holds at most 1048576: use several "
        r"DaemonSets \(name\)",
        result["msg"],
    )
    assert set(read("/api/v1", "configmaps")["data"]) == {one.name}
    # It is the sum that counts: one that gets smaller makes room.
    run("configured", one, IMAGINARY)
    assert run("configured", other, large)["changed"] is True


def test_a_user_who_may_only_read(cluster, run):
    node = cluster.node({})
    reader = cluster.kubeconfig({"token": "reader-token"})
    result = run("configured", node, IMAGINARY, kubeconfig=reader)
    assert result["msg"] == (
        'worker1: daemonsets.apps is forbidden: User "reader" cannot list resource "daemonsets" in API group "apps" at '
        "the cluster scope: give this user list on daemonsets.apps in a ClusterRole"
    )


def test_a_user_who_may_make_no_pod(cluster, namespace, run, read):
    node = cluster.node({})
    deployed(run, node)
    reader = DaemonSet(
        Api(kubeconfig.read(cluster.kubeconfig({"token": "reader-token"}))), parse({"namespace": namespace})
    )
    with pytest.raises(ApiError, match=f": give this user create on pods in a Role of namespace {namespace}$"):
        reader.api.create(Place("pods", namespace=namespace), {"metadata": {"name": "x"}, "spec": {"containers": []}})


def test_what_is_refused_for_another_reason_than_rights_asks_for_none(cluster, namespace):
    """The server forbids it by the same number, 403."""
    api = Api(kubeconfig.read(cluster.kubeconfig()))
    spec = {"automountServiceAccountToken": False, "containers": [{"name": "a", "image": "b"}]}

    def said_in(suffix, labels=None, quota=None):
        name = f"{namespace}-{suffix}"
        cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels or {}}})
        cluster.ask("POST", f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
        if quota:
            path = f"/api/v1/namespaces/{name}/resourcequotas"
            cluster.ask("POST", path, {"metadata": {"name": "few"}, "spec": {"hard": quota}})
            # What its controller does.
            status = {"status": {"hard": quota, "used": dict.fromkeys(quota, "0")}}
            cluster.ask("PATCH", f"{path}/few/status", status, "application/merge-patch+json")
        if suffix == "going":
            cluster.ask("DELETE", f"/api/v1/namespaces/{name}")
        deadline = time.monotonic() + 30
        while True:
            try:
                made = api.create(Place("pods", namespace=name), {"metadata": {"generateName": "x-"}, "spec": spec})
            except ApiError as error:
                return str(error)
            # The server may not have heard of it yet.
            api.delete(Place("pods", made["metadata"]["name"], name), made["metadata"]["uid"])
            assert time.monotonic() < deadline

    said = {
        "violates PodSecurity": said_in("strict", {"pod-security.kubernetes.io/enforce": "restricted"}),
        "exceeded quota: few": said_in("few", quota={"pods": "0"}),
        "because it is being terminated": said_in("going"),
    }
    for reason, sentence in said.items():
        assert sentence.startswith(f"the API server {cluster.server} answered 403 to POST of pods in namespace ")
        assert reason in sentence
        assert "give this user" not in sentence


def test_no_kubeconfig(run):
    assert "node_devices_kubeconfig: not set" in run("deployed", kubeconfig="")["msg"]


@pytest.mark.parametrize("selector", [{}, {"pool": "gpu"}])
def test_the_server_takes_what_the_command_renders(cluster, selector):
    deployment = manifests.parse_deployment(
        {
            "image": "example.com/plugin:1",
            "node_selector": selector,
            "namespace": "default",
            "image_pull_secrets": ["a"],
            "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute"}],
            "selinux_type": "container_device_plugin_t",
        }
    )
    everything = {"resources": [SERIAL], "registration": "plugins_registry", "cdi_spec_dirs": ["/etc/cdi", "/srv/cdi"]}
    nodes = {name: parse_configuration(everything) for name in ("a", "b")}
    paths = {"Namespace": "/api/v1/namespaces", "ConfigMap": "/api/v1/namespaces/default/configmaps"}
    for manifest in manifests.render(deployment, nodes):
        content = manifest.content
        path = paths.get(content["kind"], "/apis/apps/v1/namespaces/default/daemonsets")
        query = "dryRun=All&fieldManager=test&fieldValidation=Strict&force=true"
        path = f"{path}/{content['metadata']['name']}?{query}"
        after = cluster.ask("PATCH", path, content, "application/apply-patch+yaml")
        assert after["metadata"]["name"] == content["metadata"]["name"]


def test_the_server_reads_the_commands_text_as_it_is_meant(cluster, namespace):
    """Its parser of YAML is kubectl's, and takes more for numbers than ours."""
    deployment = manifests.parse_deployment({"image": "example.com/plugin:1", "namespace": namespace, "name": "7e12"})
    names = ("1e3", "089", "y", "w-1.example.com", manifests.DEFAULT)
    nodes = {name: parse_configuration({"resources": [SERIAL]}) for name in names}
    groups = {"Namespace": "/api/v1/namespaces", "ConfigMap": f"/api/v1/namespaces/{namespace}/configmaps"}
    after = {}
    for manifest in manifests.render(deployment, nodes):
        kind, name = manifest.content["kind"], manifest.content["metadata"]["name"]
        path = f"{groups.get(kind, f'/apis/apps/v1/namespaces/{namespace}/daemonsets')}/{name}?fieldManager=test"
        headers = {"Authorization": "Bearer admin-token", "Content-Type": "application/apply-patch+yaml"}
        text = manifest_files.to_yaml([manifest]).encode()
        request = urllib.request.Request(f"{cluster.server}{path}", text, headers, method="PATCH")
        with cluster.opener.open(request, timeout=10) as answer:
            after[kind] = json.load(answer)
    assert sorted(after["ConfigMap"]["data"]) == sorted(nodes)
    assert after["DaemonSet"]["spec"]["template"]["spec"]["nodeSelector"] == {LABEL: "7e12"}


def test_a_node_that_only_the_api_reaches_without_a_slot_is_named(cluster, run, read):
    node = cluster.node({"cpu": "2", "pods": "0"})
    with node.kubelet():
        node.version()
        result = run("configured", node, IMAGINARY, api_only=True)
        assert result["msg"].startswith(
            f"worker1: node {node.name} has no free pod slot (its kubelet accepts 0 pods), so "
        )
        assert read("/api/v1") is None
        node.set_capacity("kubelet", "pods", "1")
        node.version()
        assert run("configured", node, IMAGINARY, api_only=True)["changed"] is True
