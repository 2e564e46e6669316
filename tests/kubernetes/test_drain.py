"""A node that is drained for a while: what goes, what stays, what is refused, and whose cordon is lifted."""

from __future__ import annotations

import contextlib
import itertools
import threading
import types
import urllib.error

import pytest
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    Api,
    Conflict,
    NotFound,
    Unavailable,
)
from ansible_collections.nodedevices.kubernetes.plugins.action import node_drain
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import drain

MERGE = "application/merge-patch+json"
_numbers = itertools.count()


class Pods:
    """Pods of a node, and the kubelet that ends them."""

    def __init__(self, cluster, node):
        self._cluster, self._node, self.ends = cluster, node, True

    def make(
        self, owner="ReplicaSet", phase="Running", labels=None, annotations=None, volumes=(), name="", controls=True
    ):
        """Gives namespace and name."""
        name = name or f"pod-{next(_numbers)}"
        owners = [{"apiVersion": "apps/v1", "kind": owner, "name": "of-a-test", "uid": name, "controller": controls}]
        container = {"name": "main", "image": "example.com/image:1"}
        metadata = {
            "name": name,
            "labels": labels or {},
            "annotations": annotations or {},
            "ownerReferences": owners if owner else [],
        }
        spec = {
            "nodeName": self._node.name,
            "containers": [container],
            "volumes": list(volumes),
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 7,
            "tolerations": [{"operator": "Exists"}],
        }
        self._cluster.ask("POST", "/api/v1/namespaces/default/pods", {"metadata": metadata, "spec": spec})
        ready = [{"type": "Ready", "status": "True" if phase == "Running" else "False"}]
        status = {"status": {"phase": phase, "conditions": ready}}
        self._cluster.ask("PATCH", f"/api/v1/namespaces/default/pods/{name}/status", status, MERGE)
        return f"default/{name}"

    def budget(self, labels, allowed):
        """As the disruption controller keeps it; gives its name."""
        name = f"budget-{labels['app']}"
        place = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
        metadata = {"name": name}
        spec = {"minAvailable": 2, "selector": {"matchLabels": labels}}
        with contextlib.suppress(urllib.error.HTTPError):  # it is there
            status = {"disruptionsAllowed": 0, "desiredHealthy": 2, "currentHealthy": 2, "expectedPods": 2}
            self._cluster.ask("POST", place, {"metadata": metadata, "spec": spec, "status": status})
        status = {
            "disruptionsAllowed": allowed,
            "desiredHealthy": 2,
            "currentHealthy": 2 + allowed,
            "expectedPods": 2 + allowed,
            "observedGeneration": 1,
        }
        self._cluster.ask("PATCH", f"{place}/{name}/status", {"status": status}, MERGE)
        return name

    def delete(self, name):
        path = f"/api/v1/namespaces/default/pods/{name.partition('/')[2]}?gracePeriodSeconds=0"
        self._cluster.ask("DELETE", path)

    def all(self):
        listed = self._cluster.ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={self._node.name}")["items"]
        return {f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod for pod in listed}

    @contextlib.contextmanager
    def kubelet(self):
        stop = threading.Event()

        def end():
            while not stop.wait(0.02):
                for name, pod in self.all().items():
                    if self.ends and "deletionTimestamp" in pod["metadata"]:
                        self.delete(name)

        thread = threading.Thread(target=end)
        thread.start()
        try:
            yield self
        finally:
            stop.set()
            thread.join()


@pytest.fixture
def node(cluster):
    with contextlib.suppress(urllib.error.HTTPError):  # the real one wants it, and nobody else makes it here
        cluster.ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    return cluster.node({})


@pytest.fixture
def pods(cluster, node):
    with Pods(cluster, node).kubelet() as made:
        yield made
    for name in made.all():
        made.delete(name)


@pytest.fixture
def run(cluster, node, monkeypatch):
    """Runs the action: run(state, check=, **arguments). Said: what was shown meanwhile."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(drain, "_PAUSE", 0.02)
    monkeypatch.setattr(drain, "_TRY_AGAIN", 0.05)
    said = []
    monkeypatch.setattr(node_drain, "Display", lambda: types.SimpleNamespace(display=said.append))

    def run_action(state, check=False, **given):
        action = object.__new__(node_drain.ActionModule)
        arguments = {"state": state, "kubeconfig": cluster.kubeconfig(), "node_name": node.name, "minutes": 0.5}
        action._task = types.SimpleNamespace(args={**arguments, **given}, check_mode=check)
        return action.run(None, {"inventory_hostname": "worker1"})

    run_action.said = said
    return run_action


def cordoned(node):
    """Whether it is, and what its annotation says."""
    found = node.read()
    return bool(found.get("spec", {}).get("unschedulable")), found["metadata"]["annotations"].get(drain.ANNOTATION)


def by_hand(cluster, node, content):
    cluster.ask("PATCH", f"/api/v1/nodes/{node.name}", content, MERGE)


def test_drained_and_let_go_again(run, node, pods):
    one, other = pods.make(), pods.make("StatefulSet")
    stay = {
        pods.make("DaemonSet"),
        pods.make("Node", annotations={"kubernetes.io/config.mirror": "x"}),
        pods.make("Job", phase="Succeeded"),
    }
    result = run("drained")
    assert (result["changed"], result["cordoned"], sorted(result["evicted"])) == (True, True, sorted([one, other]))
    assert set(pods.all()) == stay
    is_cordoned, annotation = cordoned(node)
    assert is_cordoned
    assert " by ansible of " in annotation
    assert run.said == [f"{node.name}: waiting up to 0.5 minutes for {', '.join(result['evicted'])} to end"]
    again = run("drained")
    assert (again["changed"], again["cordoned"], again["evicted"]) == (False, True, [])
    assert cordoned(node) == (True, annotation)
    assert run("uncordoned")["changed"] is True
    assert cordoned(node) == (False, None)
    assert node.annotations == {"of": "others"}
    assert run("uncordoned")["changed"] is False


def test_what_is_left_of_a_cordon_that_somebody_lifted_goes(run, cluster, node, pods):
    run("drained")
    by_hand(cluster, node, {"spec": {"unschedulable": None}})
    assert not drain.is_ours(node.read())
    assert run("uncordoned")["changed"] is True
    assert cordoned(node) == (False, None)


def test_a_cordon_of_somebody_else_stays(run, cluster, node, pods):
    by_hand(cluster, node, {"spec": {"unschedulable": True}})
    gone = pods.make()
    result = run("drained")
    assert (result["cordoned"], result["evicted"]) == (False, [gone])
    assert run("uncordoned")["changed"] is False
    assert cordoned(node) == (True, None)


def test_a_cordon_that_somebody_makes_at_this_moment_stays_theirs(run, cluster, node, monkeypatch):
    merge, meanwhile = Api.merge, [{"spec": {"unschedulable": True}}]

    def merge_later(api, *arguments):
        if meanwhile:
            by_hand(cluster, node, meanwhile.pop())
        return merge(api, *arguments)

    monkeypatch.setattr(Api, "merge", merge_later)
    assert run("drained")["cordoned"] is False
    assert run("uncordoned")["changed"] is False
    assert cordoned(node) == (True, None)


def test_a_play_that_was_killed_left_a_cordon_which_the_next_one_lifts(run, node):
    assert run("drained")["changed"] is True
    # Nothing restarts this time, so that nothing is drained.
    assert run("uncordoned")["changed"] is True
    assert cordoned(node) == (False, None)


@pytest.mark.parametrize(
    ("given", "variable", "says"),
    [
        ({"owner": None}, "force", "no controller would recreate {}"),
        # An owner that makes nothing again, such as one that it goes with.
        ({"owner": "ConfigMap", "controls": False}, "force", "no controller would recreate {}"),
        (
            {"volumes": [{"name": "data", "emptyDir": {}}]},
            "delete_emptydir_data",
            "the emptyDir data of {} would be lost",
        ),
    ],
)
def test_what_would_be_lost_is_refused_before_the_node_is_cordoned(run, node, pods, given, variable, says):
    name = pods.make(**given)
    pods.make("Job", phase="Failed", volumes=[{"name": "data", "emptyDir": {}}])
    result = run("drained")
    assert result["failed"] is True
    assert result["msg"] == (
        f"worker1: node {node.name} cannot be drained: {says.format(name)} (to evict "
        f"anyway, set node_devices_drain_{variable}: true)"
    )
    assert result["changed"] is False
    assert cordoned(node) == (False, None)
    assert run("drained", **{variable: True})["evicted"] == [name]


def test_a_pod_that_its_budget_keeps_is_named_and_goes_when_it_may(run, node, pods):
    labels = {"app": f"web-{next(_numbers)}"}
    name, free = pods.make(labels=labels), pods.make()
    budget = pods.budget(labels, allowed=0)
    result = run("drained", minutes=0.01)
    assert result["failed"] is True
    assert result["msg"] == (
        f"worker1: node {node.name} still has pods after 0.01 minutes: {name} cannot be evicted: The disruption "
        f"budget {budget} needs 2 healthy pods and has 2 currently. Remove the cause, or raise "
        "node_devices_drain_minutes"
    )
    # The playbook lets it go again.
    assert (result["changed"], result["cordoned"]) == (True, True)
    assert set(pods.all()) == {name}
    assert free not in pods.all()
    threading.Timer(0.3, pods.budget, (labels, 1)).start()
    assert run("drained")["evicted"] == [name]


def test_a_pod_that_does_not_end_is_named(run, node, pods):
    pods.ends = False
    name = pods.make()
    result = run("drained", minutes=0.01)
    assert result["failed"] is True
    assert f"{name} is terminating, with a grace period of 7 s" in result["msg"]
    assert "deletionTimestamp" in pods.all()[name]["metadata"]


def test_check_mode_says_it_and_keeps_nothing(run, node, pods):
    labels = {"app": f"web-{next(_numbers)}"}
    name, kept = pods.make(), pods.make(labels=labels)
    budget = pods.budget(labels, allowed=0)
    result = run("drained", check=True)
    assert (result["changed"], result["cordoned"], sorted(result["evicted"])) == (True, True, sorted([name, kept]))
    assert result["warnings"] == [
        f"worker1: would wait up to 0.5 minutes, because {kept} cannot be evicted: The disruption budget {budget} "
        "needs 2 healthy pods and has 2 currently"
    ]
    assert run("uncordoned", check=True, pending=True)["changed"] is True
    assert run("uncordoned", check=True, pending=False)["changed"] is False
    assert not any("deletionTimestamp" in pod["metadata"] for pod in pods.all().values())
    assert cordoned(node) == (False, None)


def test_another_pod_of_the_same_name_is_left_alone(cluster, pods):
    api = Api(kubeconfig.read(cluster.kubeconfig()))
    name = pods.make()
    before = pods.all()[name]
    pods.delete(name)
    with pytest.raises(NotFound):
        api.evict(before)
    pods.make(name=before["metadata"]["name"])
    with pytest.raises(Conflict):
        api.evict(before)
    assert "deletionTimestamp" not in pods.all()[name]["metadata"]


def test_an_api_server_that_is_away_half_way_is_waited_for(run, pods, monkeypatch):
    name, listing, calls = pods.make(), Api.list, itertools.count()

    def list_later(api, *arguments, **selectors):
        if next(calls) == 2:
            raise Unavailable("the API server does not answer")
        return listing(api, *arguments, **selectors)

    monkeypatch.setattr(Api, "list", list_later)
    assert run("drained")["evicted"] == [name]
    assert next(calls) > 3


def test_a_node_that_cannot_be_let_go_is_said(run, node, unused_server, cluster, monkeypatch):
    assert run("drained")["cordoned"] is True
    monkeypatch.setattr(node_drain, "_TIMEOUT", 0.1)
    monkeypatch.setattr(node_drain, "_PAUSE", 0.02)
    result = run("uncordoned", kubeconfig=cluster.kubeconfig(server=unused_server))
    assert result["failed"] is True
    assert f"node {node.name} may still be cordoned, because the API server {unused_server}" in result["msg"]
    by_hand = f"; otherwise run kubectl uncordon {node.name} and kubectl annotate node {node.name} {drain.ANNOTATION}-"
    assert result["msg"].endswith(by_hand)


def test_what_is_looked_at_before_anything_is_touched(run, node, cluster):
    assert "node_devices_kubeconfig: not set" in run("drained", kubeconfig="")["msg"]
    assert "the cluster has no node nowhere" in run("drained", node_name="nowhere")["msg"]
    with pytest.raises(
        AnsibleError, match="node_devices_drain_minutes: must be a number of minutes, 0 or more, not soon"
    ):
        run("drained", minutes="soon")
    assert cordoned(node) == (False, None)


def test_a_right_that_is_missing_is_named(run, cluster):
    result = run("drained", kubeconfig=cluster.kubeconfig({"token": "reader-token"}))
    assert result["failed"] is True
    assert "give this user list on pods in a ClusterRole" in result["msg"]
