"""The rights that the documentation asks for are enough, against a real API server."""

from __future__ import annotations

import itertools
import pathlib
import re

import daemonset_steps
import pytest
import yaml
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import (
    claims,
    extended_resources,
    kubeconfig,
    pods,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, Place
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import (
    cluster_access,
    device_classes,
    kubelet_of_a_pod,
    proof,
    rollout,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.deployed import parse
from daemonset_steps import IMAGINARY, deployed

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
RBAC = "/apis/rbac.authorization.k8s.io/v1"
namespace, run, read = daemonset_steps.namespace, daemonset_steps.run, daemonset_steps.read
_users = itertools.count()


def documented(page):
    """The rules of a page."""
    (block,) = re.findall(r"^```yaml\n(rules:[^\n]*\n.*?)^```", (CHECKOUT / page).read_text(), re.MULTILINE | re.DOTALL)
    return yaml.safe_load(block)["rules"]


@pytest.fixture
def user_with(cluster):
    """A kubeconfig of a user who has these rules and nothing else: user_with(rules)."""

    def make(rules):
        name = f"deployer-{next(_users)}"
        cluster.ask("POST", f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": rules})
        binding = {
            "metadata": {"name": name},
            "subjects": [{"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"}],
            "roleRef": {"kind": "ClusterRole", "name": name, "apiGroup": "rbac.authorization.k8s.io"},
        }
        cluster.ask("POST", f"{RBAC}/clusterrolebindings", binding)
        return cluster.kubeconfig({"token": "admin-token", "as": name})

    return make


@pytest.mark.parametrize(
    ("settings", "api"),
    [
        ({}, "device_plugin"),
        ({"startup_taint": "nodedevices.kubernetes/not-ready:NoSchedule", "node_condition": True}, "device_plugin"),
        ({}, "dra"),
    ],
)
def test_what_a_daemonset_needs(cluster, run, read, namespace, user_with, settings, api):
    has_rights = bool(settings) or api == "dra"
    rules = [each for each in documented("docs/daemonset-reference.md") if has_rights or not _is_of_rights(each)]
    path = user_with(rules)
    node, given = cluster.node({}), {"kubeconfig": path, "deployment": settings}
    if api == "dra":
        user = Api(kubeconfig.read(path))
        declared = {"dra": {"name": "nodedevices.kubernetes"}, "resources": [{**IMAGINARY, "api": "dra"}]}
        assert cluster_access.require_dra(user.dry(), declared, {"namespace": namespace}, user.node(node.name)) == []
        assert list(claims.allocated(user)) == []
        assert claims.published(user, "nodedevices.kubernetes", node.name) == {}
        use = device_classes.Use(device_classes.profile(namespace, "gpu"), frozenset([IMAGINARY["name"]]), "d.example")
        for each in (use, use._replace(resources=frozenset())):
            assert device_classes.converge(user, [each])[0].changed is True
    pending, result = deployed(run, node, resources=({**IMAGINARY, "api": api},), **given)
    assert pending[0]["changed"] is True
    assert result["changed"] is True
    assert run("selected", node, **given)["changed"] is True
    daemon_set = DaemonSet(Api(kubeconfig.read(path)), parse({"image": "example.com/plugin:1", "namespace": namespace}))
    # What a wait and status.yml read, where nobody makes the pod.
    assert rollout.look(daemon_set, daemon_set.api.node(node.name))["state"] == "none"
    assert daemon_set.revision() == ""
    # A proof's pod.
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    kind = proof.Kind(namespace, "pause:1", (), owner=read("/apis/apps/v1", "daemonsets"))
    proofs = proof.Proofs(daemon_set.api, kind, node.name, 0.01)
    outcomes = proofs.prove([proof.Wanted(IMAGINARY["name"], 1)], lambda _pods: {})
    assert outcomes[IMAGINARY["name"]].unproven == "its pod is Pending after 0.01 s: no reason was reported"
    assert proof.remove(daemon_set.api, [namespace], node.name).changed is True
    assert pods.bound(daemon_set.api, node.name) == []
    proof.write_record(daemon_set.api, node.name, {IMAGINARY["name"]: "a" * 64})
    # Its log, its metrics, and the word to its kubelet; only a user with rights learns that no pod has the name.
    for part in ("log", "proxy/metrics"):
        with pytest.raises(Exception, match="the cluster has no pod x"):
            daemon_set.api.text(Place("pods", "x", namespace, part=part))
    with pytest.raises(Exception, match="the cluster has no pod x"):
        kubelet_of_a_pod.let_look(daemon_set.api, {"metadata": {"name": "x", "namespace": namespace}}, "a")
    pending = [run("removed", node, **given)]
    assert pending[0]["changed"] is True
    assert run("absent", pending=pending, nodes=[node.name], **given)["changed"] is True
    assert read("/apis/apps/v1", "daemonsets") is None


def _is_of_rights(rule):
    """Whether a rule is only for the rights of the pods."""
    return bool({"serviceaccounts", "clusterroles", "validatingadmissionpolicies"} & set(rule["resources"]))


def test_what_a_proof_needs(cluster, namespace, user_with):
    """Without a DaemonSet; by a device plugin, and by a claim, whose kubelet may have to be asked again."""
    node, place = cluster.node({}), Place("pods", namespace=namespace)
    cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    cluster.ask("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "default"}})
    api = Api(kubeconfig.read(user_with(documented("roles/verification/README.md"))))
    assert api.node(node.name)["metadata"]["name"] == node.name
    proofs = proof.Proofs(api, proof.Kind(namespace, "pause:1", ()), node.name, 0.01)
    wanted = [proof.Wanted("a.example/b", 1), proof.Wanted("a.example/c", 1, device_class="c.example")]
    why = "its pod is Pending after 0.01 s: no reason was reported"
    assert {name: each.unproven for name, each in proofs.prove(wanted, lambda _pods: {}).items()} == {
        "a.example/b": why,
        "a.example/c": why,
    }
    pod = api.create(place, proof.manifest(proof.Kind(namespace, "pause:1", ()), node.name, wanted[0], 1))
    kubelet_of_a_pod.let_look(api, pod, "a")
    assert "a" in api.get(place._replace(name=pod["metadata"]["name"]))["metadata"]["annotations"].values()
    assert api.list(Place("events", namespace=namespace)) == []
    assert proof.remove(api, [namespace], node.name).changed is True


def test_what_a_fixed_capacity_needs(cluster, user_with):
    node = cluster.node({"cpu": "2"})
    api = Api(kubeconfig.read(user_with(documented("roles/extended_resources/README.md"))))
    operations = [{"op": "add", "path": "/status/capacity/example.com~1a", "value": "1"}]
    assert api.node(node.name)["metadata"]["name"] == node.name
    assert api.patch_node_status(node.name, operations)["status"]["capacity"]["example.com/a"] == "1"


def test_what_the_whole_of_site_yml_does_to_a_node_object_with_the_rights_of_a_daemonset(cluster, user_with):
    """Role extended_resources remembers there what the kubelet will leave behind of the plugin, and takes it away."""
    node = cluster.node({"cpu": "2"})
    api = Api(kubeconfig.read(user_with(documented("docs/daemonset-reference.md"))))
    for served in ({IMAGINARY["name"]}, set()):
        wanted = extended_resources.Wanted({}, frozenset(served), frozenset())
        plan = extended_resources.plan(api.node(node.name), wanted)
        assert extended_resources.annotation_of(api.patch_node_status(node.name, plan.operations)) == plan.memory


def test_another_user_has_none_of_them(cluster, run, user_with):
    assert "is forbidden" in run("configured", cluster.node({}), IMAGINARY, kubeconfig=user_with([]))["msg"]
