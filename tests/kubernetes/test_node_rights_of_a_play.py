"""The rights that a play gives the plugin's pods, and takes away again; against a real API server."""

from __future__ import annotations

import daemonset_steps
import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.node_readiness import CONDITION
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import plugin_cli
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import device_classes
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.device_classes import Use
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import outcome
from daemonset_steps import IMAGINARY, deployed

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

namespace, run, read = daemonset_steps.namespace, daemonset_steps.run, daemonset_steps.read
ADMISSION, RBAC = "/apis/admissionregistration.k8s.io/v1", "/apis/rbac.authorization.k8s.io/v1"
BOTH = {"startup_taint": "nodedevices.kubernetes/not-ready:NoSchedule", "node_condition": True}
CLAIMED = {"name": "myplugin.io/claimed", "api": "dra", "devices": [{"id": "claimed", "nodes": ["/dev/null"]}]}
CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
GRANT = ["clusterrole", "validatingadmissionpolicy", "validatingadmissionpolicybinding", "clusterrolebinding"]
KINDS = ["serviceaccount", *GRANT]


@pytest.fixture
def rights(cluster, namespace):
    """The names of the kinds that exist for the deployment."""

    def look():
        paths = [
            f"/api/v1/namespaces/{namespace}/serviceaccounts",
            f"{RBAC}/clusterroles",
            *(f"{ADMISSION}/validatingadmissionpolic{ending}" for ending in ("ies", "ybindings")),
            f"{RBAC}/clusterrolebindings",
        ]
        of_cluster = f"node-device-plugin.{namespace}"
        names = {"node-device-plugin", of_cluster, f"{of_cluster}.resourceslices"}
        found = [names & {each["metadata"]["name"] for each in cluster.ask("GET", path)["items"]} for path in paths]
        return [kind for kind, there in zip(KINDS, found, strict=True) if there]

    return look


@pytest.fixture
def account(read):
    """The name of the pods' ServiceAccount."""
    return lambda: read("/apis/apps/v1", "daemonsets")["spec"]["template"]["spec"].get("serviceAccountName", "default")


def kinds(result):
    return [each.split()[0] for each in result["what"]]


def has_condition(node):
    return CONDITION in {each["type"] for each in node.read()["status"].get("conditions", ())}


def set_condition(node):
    """As the node's pod does."""
    ready, ours = {"type": "Ready", "status": "True"}, {"type": CONDITION, "status": "True"}
    node.patch("nodedevices", [{"op": "add", "path": "/status/conditions", "value": [ready, ours]}])


def test_rights_come_before_the_pods_and_go_with_their_settings(cluster, run, rights, account, monkeypatch):
    node, written = cluster.node({}), []
    deployed(run, node)
    run("selected", node)
    assert (rights(), account()) == ([], "default")
    apply = Api.apply
    monkeypatch.setattr(Api, "apply", lambda *given: written.append(given[1].kinds) or apply(*given))
    result = deployed(run, node, deployment=BOTH)[1]
    assert kinds(result) == [*KINDS, "daemonset"]
    assert rights() == KINDS
    first = {kind: written.index(kind) for kind in written}
    assert first["validatingadmissionpolicybindings"] < first["clusterrolebindings"] < first["daemonsets"]
    assert account() == "node-device-plugin"
    # Without the condition, the right to write it and the condition itself go.
    set_condition(node)
    result = deployed(run, node, deployment={**BOTH, "node_condition": False})[1]
    assert kinds(result) == ["clusterrole", "validatingadmissionpolicy", "condition", "daemonset"]
    assert not has_condition(node)
    result = deployed(run, node)[1]
    assert kinds(result) == [*reversed(KINDS), "daemonset"]
    # The API server would create no pod of a ServiceAccount that is gone.
    assert (rights(), account()) == ([], "default")


def test_rights_of_a_dra_driver_come_and_go_with_its_last_resource(cluster, run, rights, account, monkeypatch):
    node, written = cluster.node({}), []
    deployed(run, node)
    apply = Api.apply
    monkeypatch.setattr(Api, "apply", lambda *given: written.append(given[1].kinds) or apply(*given))
    result = deployed(run, node, resources=(CLAIMED, IMAGINARY))[1]
    assert kinds(result) == [*KINDS, "daemonset"]
    assert rights() == KINDS
    first = {kind: written.index(kind) for kind in written}
    assert first["validatingadmissionpolicybindings"] < first["clusterrolebindings"] < first["daemonsets"]
    assert account() == "node-device-plugin"
    # The other rights come with a role and a policy of their own, and go with them.
    result = deployed(run, node, resources=(CLAIMED,), deployment=BOTH)[1]
    assert kinds(result) == [*GRANT, "daemonset"]
    result = deployed(run, node, resources=(CLAIMED,))[1]
    assert kinds(result) == [*reversed(GRANT), "daemonset"]
    assert rights() == KINDS
    result = deployed(run, node)[1]
    assert kinds(result) == [*reversed(KINDS), "daemonset"]
    # The API server would create no pod of a ServiceAccount that is gone.
    assert (rights(), account()) == ([], "default")


def test_check_mode_foresees_each_edit_of_resources_of_dra(cluster, run, read, rights):
    """ConfigMap, rights, DaemonSet and DeviceClasses: a check stores nothing, and shows what the run then does."""
    node, groups = cluster.node({}), []

    def state():
        ours = (read("/api/v1", "configmaps"), read("/apis/apps/v1", "daemonsets"))
        objects = [*filter(None, ours), *cluster.ask("GET", CLASSES)["items"]]
        return [each["metadata"]["resourceVersion"] for each in objects], rights()

    def edit(*resources, driver="dra.example.com"):
        declared = {"configuration": {"resources": [*resources, IMAGINARY], "dra": {"driver": driver}}}
        use = Use(node.name, frozenset(each["name"] for each in resources), driver)

        def told(check):
            configured, done = deployed(run, node, resources=(), declaration=declared, check=check)
            classes = outcome(device_classes.converge(Api.of(cluster.kubeconfig(), check), [use]))
            return [(each["what"], each["diff"]) for each in (*configured, done, classes)]

        before, foreseen = state(), told(check=True)
        assert state() == before
        assert told(check=False) == foreseen
        groups.append([kinds({"what": what}) for what, _diff in foreseen])

    edit()
    edit(CLAIMED)
    edit({**CLAIMED, "devices": [{"id": "another", "nodes": ["/dev/null"], "attributes": {"side": "front"}}]})
    edit(CLAIMED, driver="other.example.com")
    edit()
    configured = ["configmap"]
    assert groups == [
        [["namespace", *configured], ["daemonset"], []],
        [configured, [*KINDS, "daemonset"], ["deviceclass"]],
        [configured, [], []],
        [configured, ["validatingadmissionpolicy"], ["deviceclass"]],
        [configured, [*reversed(KINDS), "daemonset"], ["deviceclass"]],
    ]


@pytest.mark.parametrize("daemon_set", ["is there", "was deleted"])
def test_an_uninstall_leaves_no_right_of_a_dra_driver(cluster, run, rights, namespace, daemon_set):
    node = cluster.node({})
    deployed(run, node, resources=(CLAIMED,), deployment=BOTH)
    assert rights() == KINDS
    if daemon_set == "was deleted":
        cluster.ask("DELETE", f"/apis/apps/v1/namespaces/{namespace}/daemonsets/node-device-plugin")
    run("selected", node, deployment=BOTH)
    run("absent", pending=[run("removed", node, deployment=BOTH)], deployment=BOTH)
    assert rights() == []


@pytest.mark.parametrize("profile", [False, True])
def test_claims_that_only_the_driver_can_release_keep_it(cluster, run, read, profile):
    """If only the API reaches nodes, nobody reads the plugin's records there."""
    node = cluster.node({})
    of_pool = {"node_selector": {"pool": f"claims-{profile}"}}
    labels = {"metadata": {"labels": of_pool["node_selector"]}}
    cluster.ask("PATCH", f"/api/v1/nodes/{node.name}", labels, "application/merge-patch+json")
    given = {"deployment": of_pool, "profile": True} if profile else {"api_only": True}
    of_host = None if profile else node
    pending = [run("configured", of_host, CLAIMED, **given)]
    run("deployed", pending=pending, **given)
    before = read("/api/v1", "configmaps")["data"]
    name = hold(cluster, node)
    for resources in ([IMAGINARY], [CLAIMED]):
        settings = {} if resources == [IMAGINARY] else {"dra": {"driver": "other.example.com"}}
        declared = {"configuration": {"resources": resources, **settings}}
        result = run("configured", of_host, declaration=declared, **given)
        assert f"pods have devices by the claims default/{name}, and the plugin could not release" in result["msg"]
        assert read("/api/v1", "configmaps")["data"] == before
    assert "msg" not in run("configured", of_host, CLAIMED, IMAGINARY, **given)
    cluster.ask("DELETE", f"{CLAIMS}/{name}")
    assert "msg" not in run("configured", of_host, IMAGINARY, **given)


def hold(cluster, node):
    """Create a claim with a device of the node, that a pod uses."""
    name = f"of-{node.name}"
    spec = {"devices": {"requests": [{"name": "one", "exactly": {"deviceClassName": "claimed.myplugin.io"}}]}}
    made = cluster.ask("POST", CLAIMS, {"metadata": {"name": name}, "spec": spec})
    result = {"request": "one", "driver": "nodedevices.kubernetes", "device": "claimed"}
    result["pool"] = f"{node.name}/claimed.myplugin.io"
    status = {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "web", "uid": "1"}],
    }
    cluster.ask("PUT", f"{CLAIMS}/{name}/status", {**made, "status": status})
    return name


def test_an_uninstall_leaves_neither_rights_nor_conditions(cluster, run, rights, namespace):
    one, other = cluster.node({}), cluster.node({})
    deployed(run, one, other, deployment=BOTH)
    for node in (one, other):
        run("selected", node, deployment=BOTH)
        set_condition(node)
    result = run("removed", one, deployment=BOTH)
    assert kinds(result) == ["label", "condition", "configmap"]
    assert (has_condition(one), has_condition(other)) == (False, True)
    pending = [run("removed", other, deployment=BOTH)]
    assert rights() == KINDS
    foreseen = run("absent", pending=pending, check=True, deployment=BOTH)
    result = run("absent", pending=pending, deployment=BOTH)
    assert result["what"] == foreseen["what"]
    assert kinds(result) == [*reversed(KINDS), "daemonset", "configmap", "namespace"]
    assert rights() == []
    assert not has_condition(other)


def test_an_uninstall_of_a_profile_removes_the_conditions_of_its_nodes(cluster, run, rights):
    of_pool = {**BOTH, "node_selector": {"pool": "conditions"}}
    node = cluster.node({})
    cluster.ask(
        "PATCH",
        f"/api/v1/nodes/{node.name}",
        {"metadata": {"labels": of_pool["node_selector"]}},
        "application/merge-patch+json",
    )
    run("deployed", pending=[run("configured", None, IMAGINARY, profile=True, deployment=of_pool)], deployment=of_pool)
    set_condition(node)
    run("absent", pending=[run("removed", profile=True, deployment=of_pool)], deployment=of_pool)
    assert rights() == []
    assert not has_condition(node)


def test_objects_of_others_with_these_names_are_refused(cluster, run, namespace, read):
    cluster.ask("POST", f"{RBAC}/clusterroles", {"metadata": {"name": f"node-device-plugin.{namespace}"}, "rules": []})
    result = deployed(run, cluster.node({}), deployment=BOTH)[1]
    assert f"clusterrole node-device-plugin.{namespace} belongs to others" in result["msg"]
    assert read("/apis/apps/v1", "daemonsets") is None


def test_a_play_removes_the_startup_taint_of_a_service(cluster, run, monkeypatch):
    devices = [{"state": state, "kubelet_ids": ["a::0", "a::1"]} for state in ("healthy", "unhealthy")]
    status = {"name": "example.com/dev", "registered": False, "devices": devices}
    monkeypatch.setattr(plugin_cli, "answer", lambda _action, command: {"plugin": {"resources": [status]}})
    taints = [{"key": "nodedevices.kubernetes/not-ready", "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    node = cluster.node({"cpu": "2"})
    path, merge = f"/api/v1/nodes/{node.name}", "application/merge-patch+json"
    cluster.ask("PATCH", path, {"spec": {"taints": taints}}, merge)
    node.patch("kubelet", [{"op": "add", "path": "/status/allocatable", "value": {"example.com/dev": "4"}}])
    given = {"deployment": BOTH, "command": "/opt/plugin", "timeout": 0}
    assert "not registered with the kubelet: example.com/dev" in run("untainted", node, **given)["msg"]
    status["registered"] = True
    said = run("untainted", node, **given)["msg"]
    assert "the startup taint nodedevices.kubernetes/not-ready:NoSchedule stays: the node object does not show" in said
    assert "example.com/dev (offered: 2, allocatable: 4)" in said
    node.patch("kubelet", [{"op": "add", "path": "/status/allocatable/example.com~1dev", "value": "2"}])
    assert run("untainted", node, check=True, **given)["changed"] is True
    assert len(node.read()["spec"]["taints"]) == 2
    assert kinds(run("untainted", node, **given)) == ["taint"]
    assert [each["effect"] for each in node.read()["spec"]["taints"]] == ["NoExecute"]
    said = run("untainted", node, kubeconfig="", **given)["msg"]
    assert "not set, but device_plugin_deployment.startup_taint is removed through the Kubernetes API" in said
