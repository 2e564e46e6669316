"""The states of the action daemonset, one after the other, in a cluster that is kept in memory.

tests/kubernetes has them against a real API server; here controller and kubelet are played, too.
"""

from __future__ import annotations

import copy
import itertools
import json
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, NotFound, Place
from ansible_collections.nodedevices.kubernetes.plugins.action import daemonset
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import declaration, preflight
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import other_daemonsets, proof, rollout

LABEL = "nodedevices.kubernetes/device-plugin"
NAME = "node-device-plugin"
IMAGINARY = {"name": "a.example/imaginary", "devices": [{"id": "one"}], "env": {"IMAGINARY": "/one"}}
FOUND = {"name": "a.example/found", "discover": {"paths": ["/dev/serial/by-id/*"]}}
CONFIG_MAP, DAEMON_SET = Place("configmaps", NAME, "ours"), Place("daemonsets", NAME, "ours", "apps/v1")
NAMESPACE = Place("namespaces", "ours")


class Cluster:
    """The objects of an API server by place, and what else than reading it was asked for."""

    def __init__(self, *nodes):
        self.there, self.changes, self._uids = {}, [], itertools.count()
        status = {"conditions": [{"type": "Ready", "status": "True"}]}
        for node in nodes:
            self.put(Place("nodes", node), {"metadata": {"name": node, "labels": {}}, "status": status})

    def put(self, place, content):
        made = copy.deepcopy(content)
        made["metadata"].update({"namespace": place.namespace} if place.namespace else {})
        made["metadata"].setdefault("uid", f"uid-{next(self._uids)}")
        self.there[place] = made

    def ask(self, method, place, query, content, kind, _limit=0):
        """As Api._ask."""
        if place.kinds.startswith("/"):
            answer = self._discovered(place.kinds)
        elif place.part == "proxy/metrics":
            return self._metrics(place).encode()
        elif method == "GET":
            answer = self._one(place) if place.name else {"items": self._all(place, **query)}
        else:
            answer = self._changed(method, place, content, kind, "All" in (query.get("dryRun"), *_dry_run(content)))
        return json.dumps({"kind": "x", **answer}).encode()

    def _one(self, place):
        if place not in self.there:
            raise NotFound(str(place))
        return self.there[place]

    def _all(self, place, fieldSelector="", **_more):
        found = [
            each
            for where, each in self.there.items()
            if where._replace(name="", namespace=place.namespace and where.namespace) == place
        ]
        field, _equals, node = fieldSelector.partition("spec.nodeName=")
        return [each for each in found if field == fieldSelector or each["spec"]["nodeName"] == node]

    def _changed(self, method, place, content, kind, dry_run):
        before = self.there
        if dry_run:
            self.there = copy.deepcopy(before)
        else:
            self.changes.append((method, str(place)))
        try:
            if method == "DELETE":
                assert content["preconditions"] == {"uid": self._one(place)["metadata"]["uid"]}
                return self.there.pop(place)
            if kind == "application/merge-patch+json":
                self.there[place] = _merged(self._one(place), content)
            else:
                known = self.there.get(place, {"metadata": {}})
                # What others own stays, such as a ConfigMap's keys.
                self.put(place, {**known, **content, "metadata": {**known["metadata"], **content["metadata"]}})
            return self.there[place]
        finally:
            self.there = before if dry_run else self.there

    def _discovered(self, path):
        if path == "/apis":
            version = {"groupVersion": "apps/v1"}
            return {"groups": [{"name": "apps", "preferredVersion": version, "versions": [version]}]}
        names = ["daemonsets"] if path == "/apis/apps/v1" else ["configmaps", "pods"]
        return {"resources": [{"name": name, "namespaced": True, "verbs": ["list"]} for name in names]}

    def run_pod(self, node):
        """As controller and kubelet do with a DaemonSet that has a new node."""
        owner = self.there[DAEMON_SET]["metadata"]
        owner["generation"] = 1
        self.there[DAEMON_SET]["status"] = {"observedGeneration": 1}
        references = [{"kind": "DaemonSet", "name": NAME, "uid": owner["uid"]}]
        of_ours = {"controller-revision-hash": "1"}
        revision = {"metadata": {"name": "r", "labels": of_ours, "ownerReferences": references}, "revision": 1}
        self.put(Place("controllerrevisions", "r", "ours", "apps/v1"), revision)
        metadata = {"name": f"pod-of-{node}", "labels": of_ours, "ownerReferences": references}
        container = {"name": manifests.CONTAINER, "ports": [{"containerPort": 9819}]}
        status = {"name": manifests.CONTAINER, "containerID": "containerd://1", "state": {"running": {}}}
        self.put(
            Place("pods", f"pod-of-{node}", "ours"),
            {
                "metadata": metadata,
                "spec": {"nodeName": node, "containers": [container]},
                "status": {"containerStatuses": [{**status, "ready": True, "started": True}]},
            },
        )

    def _metrics(self, place):
        """The plugin runs with what the ConfigMap has for its node."""
        text = self.there[CONFIG_MAP]["data"][place.name.partition(":")[0].removeprefix("pod-of-")]
        return f'node_device_plugin_configuration_info{{sha256="{manifests.sha256_of(text)}"}} 1\n'

    def label(self, node):
        return self.there[Place("nodes", node)]["metadata"]["labels"].get(LABEL)


def _dry_run(content):
    return (content.get("dryRun") or ()) if isinstance(content, dict) else ()


def _merged(content, patch):
    """A merge patch (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    merged = {**content, **{key: _merged(content.get(key) or {}, value) for key, value in patch.items()}}
    return {key: value for key, value in merged.items() if value is not None}


@pytest.fixture
def cluster(monkeypatch):
    made = Cluster("worker1", "worker2")

    def of(_path, dry_run=False):
        api = object.__new__(Api)
        api.dry_run, api._ask = dry_run, made.ask
        return api

    monkeypatch.setattr(Api, "of", of)
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(rollout, "_PAUSE", 0.001)
    return made


def run(
    state,
    node=None,
    *resources,
    check=False,
    strategy="linear",
    hosts=("host1",),
    api_only=False,
    profile=False,
    **given,
):
    action = object.__new__(daemonset.ActionModule)
    arguments = {
        "state": state,
        "kubeconfig": "x",
        "deployment": {"image": "example.com/plugin:1", "namespace": "ours"},
        "timeout": 0.05,
        **({"node_name": node} if node else {}),
        **({"declaration": {"configuration": {"resources": list(resources)}}} if resources else {}),
        **given,
    }
    play = types.SimpleNamespace(strategy=strategy)
    action._task = types.SimpleNamespace(args=arguments, check_mode=check, get_play=lambda: play)
    action._templar = types.SimpleNamespace(template=lambda value: value)
    variables = {"ansible_play_hosts": list(hosts), "node_devices_api_only": api_only, "node_devices_profile": profile}
    return action.run(None, {"inventory_hostname": "host1", **variables})


CAMERA = {"name": "a.example/camera", "devices": [{"id": "one", "nodes": [{"path": "/dev/video0", "gid": "video"}]}]}


@pytest.mark.parametrize("is_known", [True, False])
@pytest.mark.parametrize("video", [44, None])
def test_the_pod_gets_the_numbers_of_the_nodes_groups(cluster, monkeypatch, video, is_known):
    declared = declaration.read({"node_devices_resources": [CAMERA]}, lambda value: value).as_data()
    found = {"accounts": {"users": {}, "groups": {"video": video}}}
    monkeypatch.setattr(preflight.Preflight, "known", found if is_known else None)
    monkeypatch.setattr(preflight.Preflight, "on_node", lambda *_given: {} if is_known else found)
    result = run("configured", "worker1", declaration=declared)
    if video is None:
        assert result["msg"].startswith("host1: a.example/camera.devices (one).nodes[0].gid: the node has no group")
        assert cluster.changes == []
    else:
        (resource,) = manifests.read_configuration_text(result["text"]).resources
        assert resource.devices[0].nodes[0].gid == video


@pytest.mark.parametrize("strategy", ["free", "ansible.builtin.host_pinned", "mitogen_free"])
@pytest.mark.parametrize("state", ["deployed", "left", "absent"])
def test_a_strategy_that_runs_a_shared_task_for_each_host_is_refused(cluster, state, strategy):
    refused = run(state, strategy=strategy, hosts=("host1", "host2"))
    assert refused["failed"]
    assert f"the play's strategy is {strategy}, but one task" in refused["msg"]
    assert "set strategy: linear in the play" in refused["msg"]
    assert cluster.changes == []
    # One host is all hosts.
    assert not run("absent", strategy=strategy).get("failed")
    assert not run("absent", strategy="mitogen_linear", hosts=("host1", "host2")).get("failed")


def deployed(cluster, *nodes):
    """All states up to a pod that runs on each."""
    pending = [run("configured", node, IMAGINARY, FOUND, api_only=True) for node in nodes]
    result = run("deployed", pending=pending, nodes=nodes)
    for node in nodes:
        run("selected", node)
        cluster.run_pod(node)
    return pending, result


def kinds(result):
    return [each.partition(" ")[0] for each in result["what"]]


def test_the_life_of_a_node(cluster):
    foreseen = run("configured", "worker1", IMAGINARY, check=True)
    assert cluster.changes == []
    configured = run("configured", "worker1", IMAGINARY)
    assert kinds(configured) == kinds(foreseen) == ["namespace", "configmap"]
    assert cluster.there[CONFIG_MAP]["data"] == {"worker1": configured["text"]}
    result = run("deployed", pending=[configured], nodes=["worker1"])
    assert (kinds(result), "warnings" in result) == (["daemonset"], False)
    assert run("selected", "worker1")["what"] == [f"label {LABEL} of node worker1"]
    assert (cluster.label("worker1"), cluster.label("worker2")) == (NAME, None)
    assert "after 0.05 s, DaemonSet node-device-plugin has no pod" in (run("selected", "worker1", started=True)["msg"])
    cluster.run_pod("worker1")
    assert "msg" not in run("selected", "worker1", started=True)
    sha256 = manifests.sha256_of(configured["text"])
    ready = {"changed": False, "sha256": sha256, "pod": "pod-of-worker1"}
    invocation = {"invocation_id": "pod-of-worker1 containerd://1"}
    assert run("ready", "worker1", IMAGINARY) == {**ready, **invocation}
    assert run("ready", "worker1", IMAGINARY, check=True) == {**ready, "pod": None}
    assert "pod-of-worker1 runs with configuration" in run("ready", "worker1", FOUND)["msg"]
    before = len(cluster.changes)
    for state, given in (("configured", ("worker1", IMAGINARY)), ("selected", ("worker1",))):
        assert run(state, *given)["changed"] is False
    assert [change for change in cluster.changes[before:] if "namespace" not in change[1]] == []


def test_all_of_it_goes_with_the_last_node(cluster):
    deployed(cluster, "worker1")
    proof.write_record(Api.of("x"), "worker1", {IMAGINARY["name"]: "a" * 64})
    foreseen = run("removed", "worker1", check=True)
    assert cluster.label("worker1") == NAME
    del cluster.there[Place("pods", "pod-of-worker1", "ours")]
    removed = run("removed", "worker1")
    assert removed["what"] == foreseen["what"]
    assert kinds(removed) == ["label", "annotation", "configmap"]
    assert cluster.label("worker1") is None
    assert proof.read_record(cluster.there[Place("nodes", "worker1")]) == {}
    gone = run("absent")
    assert (kinds(gone), "warnings" in gone) == (["daemonset", "configmap", "namespace"], False)
    assert {CONFIG_MAP, DAEMON_SET, NAMESPACE} & set(cluster.there) == set()
    assert run("absent") == {"changed": False, "what": [], "diff": []}


def test_what_others_have_in_the_namespace_keeps_it_and_that_is_said(cluster):
    deployed(cluster, "worker1")
    cluster.put(Place("configmaps", "theirs", "ours"), {"metadata": {"name": "theirs"}})
    del cluster.there[Place("pods", "pod-of-worker1", "ours")]
    run("removed", "worker1")
    gone = run("absent")
    assert kinds(gone) == ["daemonset", "configmap"]
    assert gone["warnings"] == ["host1: namespace ours stays: it still contains configmaps theirs"]
    assert NAMESPACE in cluster.there


def test_a_namespace_that_goes_with_its_last_daemonset_is_not_said_to_stay(cluster):
    second = {"image": "example.com/plugin:1", "namespace": "ours", "name": "second"}
    deployed(cluster, "worker1")
    configured = run("configured", "worker2", IMAGINARY, api_only=True, deployment=second)
    run("deployed", pending=[configured], nodes=["worker2"], deployment=second)
    del cluster.there[Place("pods", "pod-of-worker1", "ours")]
    removed = [run("removed", "worker1"), run("removed", "worker2", deployment=second)]
    gone = run("absent", pending=removed)
    assert kinds(gone) == ["daemonset", "configmap", "daemonset", "configmap", "namespace"]
    assert "warnings" not in gone


def test_nothing_goes_while_another_node_needs_it(cluster):
    deployed(cluster, "worker1", "worker2")
    del cluster.there[Place("pods", "pod-of-worker1", "ours")]
    assert run("removed", "worker1")["changed"] is True
    assert run("absent")["changed"] is False
    assert set(cluster.there[CONFIG_MAP]["data"]) == {"worker2"}
    assert cluster.label("worker2") == NAME


def test_a_pod_that_does_not_end_is_named(cluster):
    deployed(cluster, "worker1")
    assert "pod pod-of-worker1 has not ended within 0.05 s" in run("removed", "worker1")["msg"]


def test_the_pod_of_a_host_in_a_pool_stays_with_the_default(cluster):
    cluster.there[Place("nodes", "worker1")]["metadata"]["labels"]["pool"] = "gpu"
    of_pool = {"deployment": {"image": "example.com/plugin:1", "namespace": "ours", "node_selector": {"pool": "gpu"}}}
    configured = run("configured", "worker1", IMAGINARY, **of_pool)
    run("deployed", pending=[configured], nodes=["worker1"], **of_pool)
    cluster.run_pod("worker1")
    assert run("removed", "worker1", **of_pool)["what"] == [f"{CONFIG_MAP}, worker1"]


def tidied(cluster, monkeypatch):
    """The resources of each configuration that a plugin was waited for, while its pod ends right after that."""
    seen, await_node = [], rollout.await_node

    def awaited(daemon_set, node, *rest):
        pod = await_node(daemon_set, node, *rest)
        text = cluster.there[CONFIG_MAP]["data"][node]
        seen.append(manifests.read_configuration_text(text).resources)
        del cluster.there[Place("pods", f"pod-of-{node}", "ours")]
        return pod

    monkeypatch.setattr(rollout, "await_node", awaited)
    return seen


def test_where_only_the_api_reaches_a_node_its_plugin_first_takes_its_cdi_specs_away(cluster, monkeypatch):
    (configured,), _result = deployed(cluster, "worker1")
    seen = tidied(cluster, monkeypatch)
    foreseen = run("removed", "worker1", api_only=True, check=True)
    assert seen == []
    removed = run("removed", "worker1", api_only=True)
    assert seen == [()]
    # That it had none in between is no change that somebody has to know of.
    assert (removed["what"], removed["diff"]) == (foreseen["what"], foreseen["diff"])
    assert configured["text"] in [each["before"] for each in removed["diff"]]
    assert "warnings" not in removed
    assert cluster.there[CONFIG_MAP]["data"] == {}


@pytest.mark.parametrize("how", ["reached", "without its label", "gone", "not configured"])
def test_a_node_without_a_plugin_of_ours_has_nothing_to_take_away(cluster, monkeypatch, how):
    """Nor has one that Ansible reaches: there the role does it."""
    deployed(cluster, "worker1")
    seen = tidied(cluster, monkeypatch)
    del cluster.there[Place("pods", "pod-of-worker1", "ours")]
    node = Place("nodes", "worker1")
    if how == "without its label":
        cluster.there[node]["metadata"]["labels"] = {}
    elif how == "gone":
        del cluster.there[node]
    elif how == "not configured":
        cluster.there[CONFIG_MAP]["data"] = {}
    removed = run("removed", "worker1", api_only=how != "reached")
    assert (seen, "warnings" in removed, removed["changed"]) == ([], False, True)
    assert "worker1" not in cluster.there[CONFIG_MAP]["data"]


@pytest.mark.parametrize(
    ("started", "why"),
    [
        (False, "its pod does not run"),
        (True, "after 0.05 s, pod ours/pod-of-worker1 is not ready: its pod is not ready"),
    ],
)
def test_cdi_specs_that_stay_on_a_node_are_said(cluster, monkeypatch, started, why):
    deployed(cluster, "worker1")
    monkeypatch.setattr(rollout, "await_end", lambda *_given: None)
    (status,) = cluster.there[Place("pods", "pod-of-worker1", "ours")]["status"]["containerStatuses"]
    status.update(ready=False, started=started)
    removed = run("removed", "worker1", api_only=True)
    assert removed["warnings"] == [f"host1: CDI specs that the plugin wrote stay on the node: {why}"]
    assert cluster.there[CONFIG_MAP]["data"] == {}


@pytest.mark.parametrize(("known", "goes"), [(["worker1"], True), (None, False)])
def test_what_the_inventory_has_no_longer_goes_where_that_is_known(cluster, known, goes):
    pending, _result = deployed(cluster, "worker1", "worker2")
    run("deployed", pending=pending[:1], nodes=known)
    assert (cluster.label("worker2") is None) is goes
    assert set(cluster.there[CONFIG_MAP]["data"]) == {"worker1"} | (set() if goes else {"worker2"})


def test_a_node_that_goes_to_another_daemon_set_leaves_nothing_of_the_first(cluster):
    deployed(cluster, "worker1")
    second = {"deployment": {"image": "example.com/plugin:1", "namespace": "ours", "name": "second"}}
    configured = run("configured", "worker1", IMAGINARY, **second)
    assert configured["other_daemonsets"] == [{"namespace": "ours", "name": NAME}]
    assert configured["warnings"][0].startswith(f"host1: the node moves from DaemonSet {NAME} to second. ")
    run("deployed", pending=[configured], nodes=["worker1"], **second)
    run("selected", "worker1", **second)
    left = run("left", pending=[configured], **second)
    assert left["what"] == [f"{CONFIG_MAP}, worker1", str(DAEMON_SET), str(CONFIG_MAP)]
    assert CONFIG_MAP._replace(name="second") in cluster.there
    assert cluster.label("worker1") == "second"
    assert run("left", pending=[], **second) == {"changed": False, "what": [], "diff": []}
    assert "warnings" not in run("configured", "worker1", IMAGINARY, **second)


def test_another_plugin_is_not_taken_over_where_only_the_api_reaches_the_node(cluster, monkeypatch):
    monkeypatch.setattr(other_daemonsets, "_TOLD", 0.0)
    node = cluster.there[Place("nodes", "worker1")]
    offered = {IMAGINARY["name"]: "1"}
    fields = {"f:status": {"f:capacity": {f"f:{name}": {} for name in offered}}}
    node["metadata"]["managedFields"] = [{"manager": "kubelet", "subresource": "status", "fieldsV1": fields}]
    node["status"].update(capacity=offered, allocatable=offered)
    said = run("configured", "worker1", IMAGINARY, api_only=True)["msg"]
    assert said.startswith("host1: another device plugin already serves a.example/imaginary on node worker1")
    assert cluster.changes == []
    # What our pod serves is ours, although nobody has a key: somebody deleted the ConfigMap, or it is the default.
    monkeypatch.setattr(other_daemonsets.rollout, "served", lambda _cluster, _node: {IMAGINARY["name"]})
    assert run("configured", "worker1", IMAGINARY, api_only=True, check=True)["changed"] is True
    assert run("configured", "worker1", IMAGINARY, api_only=True, takeover=True)["changed"] is True


@pytest.mark.parametrize(("version", "refused"), [("v1.33.9+k3s1", True), ("v1.34.0", False), (None, False)])
def test_a_kubelet_without_dra_is_refused_where_only_the_api_reaches_the_node(cluster, version, refused):
    cluster.there[Place("nodes", "worker1")]["status"]["nodeInfo"] = {"kubeletVersion": version}
    claimed = {"name": "a.example/claimed", "api": "dra", "devices": [{"id": "one", "nodes": ["/dev/null"]}]}
    said = run("configured", "worker1", claimed, api_only=True).get("msg", "")
    assert said.startswith("host1: kubelet 1.33.9+k3s1 has no DRA API v1") == refused
    assert bool(cluster.changes) != refused
    assert "msg" not in run("configured", "worker1", IMAGINARY, api_only=True)


@pytest.mark.parametrize("version", ["v1.33.9", "v1.34.0"])
def test_a_profile_with_claims_is_refused_while_one_of_its_nodes_has_a_kubelet_without_dra(cluster, version):
    node = cluster.there[Place("nodes", "worker1")]
    node["metadata"]["labels"] = {"pool": "gpu"}
    node["status"]["nodeInfo"] = {"kubeletVersion": version}
    deployment = {"image": "example.com/plugin:1", "namespace": "ours", "node_selector": {"pool": "gpu"}}
    claimed = {"name": "a.example/claimed", "api": "dra", "devices": [{"id": "one", "nodes": ["/dev/null"]}]}
    said = run("configured", None, claimed, profile=True, deployment=deployment).get("msg", "")
    assert said.startswith("host1: node worker1: kubelet 1.33.9 has no DRA API v1") == (version == "v1.33.9")
    assert "msg" not in run("configured", None, IMAGINARY, profile=True, deployment=deployment)
