"""Static extended resources on a node object: patched, changed, removed, restored and refused."""

from __future__ import annotations

import json
import threading
import time

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import api
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.extended_resources import ANNOTATION
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.declaration import schema

DONGLE, LICENSE, KVM = "example.com/dongle", "example.com/license", "devices.example.com/kvm"
FIRST = {"cpu": "2", "pods": "110"}


@pytest.fixture
def node(cluster):
    node = cluster.node(FIRST)
    with node.kubelet():
        yield node


def memory(node):
    return json.loads(node.annotations[ANNOTATION])


def states(result):
    return {row["resource"]: row["state"] for row in result["resources"]}


def eventually(seen):
    deadline = time.monotonic() + 5
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_patched_and_allocatable_and_then_unchanged(run, node):
    result = run(node, {DONGLE: 4})
    assert result["changed"] is True
    assert node.extended == {DONGLE: "4"}
    assert result["resources"] == [
        {"resource": DONGLE, "declared": "4", "capacity": "4", "allocatable": "4", "state": "as declared"}
    ]
    assert result["diff"]["before"] == {"capacity": {}}
    assert result["diff"]["after"]["capacity"] == {DONGLE: "4"}
    assert memory(node) == {"patched": {DONGLE: None}, "served": []}
    assert node.annotations["of"] == "others"
    version = node.version()
    again = run(node, {DONGLE: 4})
    assert again["changed"] is False
    assert again["diff"]["before"] == again["diff"]["after"]
    assert node.version() == version


def test_a_number_that_the_api_server_writes_in_another_way(run, node):
    assert run(node, {DONGLE: 23000})["changed"] is True
    assert node.extended == {DONGLE: "23k"}
    assert run(node, {DONGLE: 23000})["changed"] is False


def test_the_largest_number_that_a_declaration_may_have(run, node):
    for number in (min(10**18, schema.LARGEST_CAPACITY), schema.LARGEST_CAPACITY - 775):
        assert run(node, {DONGLE: number})["changed"] is True
        assert run(node, {DONGLE: number})["changed"] is False


def test_changed_and_removed_and_nothing_else(run, node):
    node.set_capacity("others", "example.com/theirs", "7")
    run(node, {DONGLE: 4, LICENSE: 2})
    result = run(node, {DONGLE: 6})
    assert result["diff"]["before"]["capacity"] == {DONGLE: "4", LICENSE: "2"}
    assert result["diff"]["after"]["capacity"] == {DONGLE: "6"}
    assert node.extended == {DONGLE: "6", "example.com/theirs": "7"}
    assert run(node, {}, state="absent")["changed"] is True
    assert node.extended == {"example.com/theirs": "7"}
    assert node.annotations == {"of": "others"}
    assert run(node, {}, state="absent")["changed"] is False


def test_what_was_there_before_comes_back(run, node):
    node.set_capacity("others", DONGLE, "3")
    run(node, {DONGLE: 4})
    assert memory(node)["patched"] == {DONGLE: "3"}
    run(node, {DONGLE: 5})
    run(node, {})
    assert node.extended == {DONGLE: "3"}


def test_check_mode_says_the_same_and_changes_nothing(run, node):
    foreseen = run(node, {DONGLE: 4}, check=True)
    assert node.extended == {}
    assert ANNOTATION not in node.annotations
    done = run(node, {DONGLE: 4})
    assert (foreseen["changed"], foreseen["diff"]) == (done["changed"], done["diff"])
    assert run(node, {DONGLE: 4}, check=True)["changed"] is False


def test_what_a_kubelet_reset_is_reported_and_put_back(run, node):
    run(node, {DONGLE: 4})
    node.set_capacity("kubelet", DONGLE, "0")
    report = run(node, {DONGLE: 4}, state="reported")
    says = f"worker1: {DONGLE}: reset by a restart of the kubelet: the next run restores it"
    assert report["problems"] == [says]
    assert report["changed"] is False
    assert states(report) == {DONGLE: "reset by a restart of the kubelet: the next run restores it"}
    assert node.extended == {DONGLE: "0"}
    assert run(node, {DONGLE: 4})["changed"] is True
    assert node.extended == {DONGLE: "4"}


def test_a_reset_capacity_that_is_no_longer_declared_goes(run, node):
    run(node, {DONGLE: 4})
    node.set_capacity("kubelet", DONGLE, "0")
    run(node, {})
    assert node.extended == {}


def test_a_node_that_is_rebuilt_has_no_memory_and_gets_its_capacities(run, node):
    run(node, {DONGLE: 4, LICENSE: 2})
    node.delete()
    node.create({**FIRST, LICENSE: "9"})
    assert run(node, {DONGLE: 4})["changed"] is True
    assert node.extended == {DONGLE: "4", LICENSE: "9"}


@pytest.mark.parametrize("check", [False, True])
def test_a_name_that_a_device_plugin_serves_is_refused(run, node, check):
    node.registered = {DONGLE}
    node.set_capacity("kubelet", DONGLE, "2")
    result = run(node, {DONGLE: 4, LICENSE: 1}, check=check)
    assert result["failed"] is True
    assert result["msg"].startswith(f"worker1: {DONGLE}: a device plugin on this node serves it (capacity now: 2)")
    assert node.extended == {DONGLE: "2"}


def test_what_a_device_plugin_took_over_stays_when_the_capacity_goes(run, node):
    run(node, {DONGLE: 4})
    node.registered = {DONGLE}
    node.set_capacity("kubelet", DONGLE, "2")
    run(node, {})
    assert node.extended == {DONGLE: "2"}
    assert ANNOTATION not in node.annotations


def test_the_device_plugins_keys_go_once_the_kubelet_forgot_it(run, node):
    node.registered = {KVM}
    node.set_capacity("kubelet", KVM, "8")
    assert states(run(node, {}, (KVM,))) == {KVM: "served"}
    assert memory(node) == {"patched": {}, "served": [KVM]}
    # Uninstalled: the kubelet knows it for 5 minutes more, and would write the key again.
    result = run(node, {}, (KVM,), state="absent")
    assert result["lingering"] == [KVM]
    assert result["warnings"][0].startswith(f"worker1: the kubelet still lists {KVM}, because ")
    assert node.extended == {KVM: "8"}
    node.registered = set()
    node.set_capacity("kubelet", KVM, "0")
    assert run(node, {}, (KVM,), state="absent")["changed"] is True
    assert node.extended == {}
    assert ANNOTATION not in node.annotations


def test_a_kubelet_that_lost_its_checkpoint_leaves_numbers_behind(run, node):
    node.registered = {KVM}
    node.set_capacity("kubelet", KVM, "8")
    run(node, {}, (KVM,))
    node.registered = set()
    run(node, {})
    assert node.extended == {}


def test_what_somebody_patched_under_a_former_name_of_the_plugin_stays(run, node):
    node.registered = {KVM}
    node.set_capacity("kubelet", KVM, "8")
    run(node, {}, (KVM,))
    node.registered = set()
    node.set_capacity("others", KVM, "5")
    run(node, {})
    assert node.extended == {KVM: "5"}
    assert ANNOTATION not in node.annotations


def test_a_patch_that_meets_another_state_is_made_again(run, node, monkeypatch):
    run(node, {DONGLE: 4})
    stale = node.read()
    node.set_capacity("kubelet", DONGLE, "0")
    answers = [stale]
    fresh = api.Api.node
    monkeypatch.setattr(api.Api, "node", lambda self, name: answers.pop() if answers else fresh(self, name))
    result = run(node, {DONGLE: 6})
    assert result["diff"]["before"]["capacity"] == {DONGLE: "0"}
    assert node.extended == {DONGLE: "6"}


@pytest.fixture
def meanwhile(monkeypatch):
    """meanwhile(do): it is done once, right after the node object was read."""
    read = api.Api.node

    def arrange(do):
        left = [do]

        def racing(self, name):
            found = read(self, name)
            while left:
                left.pop()()
            return found

        monkeypatch.setattr(api.Api, "node", racing)

    return arrange


def test_annotations_that_somebody_adds_meanwhile_stay(run, node, cluster, meanwhile):
    """Where there was none, ours would come as a map with nothing else in it."""

    def annotate(annotations):
        content = {"metadata": {"annotations": annotations}}
        cluster.ask("PATCH", f"/api/v1/nodes/{node.name}", content, "application/merge-patch+json")

    annotate(None)
    meanwhile(lambda: annotate({"of": "a network"}))
    assert run(node, {DONGLE: 4})["changed"] is True
    assert node.annotations["of"] == "a network"
    assert memory(node) == {"patched": {DONGLE: None}, "served": []}


def test_a_capacity_that_somebody_adds_meanwhile_comes_back_later(run, node, meanwhile):
    meanwhile(lambda: node.set_capacity("others", DONGLE, "9"))
    assert run(node, {DONGLE: 4})["changed"] is True
    run(node, {})
    assert node.extended == {DONGLE: "9"}


def test_a_kubelet_that_does_not_follow(run, cluster):
    node = cluster.node(FIRST)
    condition = {"type": "Ready", "status": "Unknown", "message": "Kubelet stopped posting node status."}
    status = [
        {"op": "add", "path": "/status/allocatable", "value": FIRST},
        {"op": "add", "path": "/status/conditions", "value": [condition]},
    ]
    node.patch("kubelet", status)
    result = run(node, {DONGLE: 4}, timeout=0)
    assert result["msg"] == (
        f"worker1: the kubelet has not made the patched capacity of {DONGLE} allocatable within 0 s: the node is not "
        "Ready (Kubelet stopped posting node status.): retry when it is Ready"
    )
    assert states(run(node, {DONGLE: 4}, state="reported")) == {DONGLE: "not allocatable yet"}
    with node.kubelet():
        assert run(node, {DONGLE: 4})["changed"] is False


def test_a_node_whose_kubelet_never_reported(run, cluster):
    result = run(cluster.node(), {DONGLE: 4})
    assert result["msg"].startswith(
        "worker1: the node object has no capacity, because its kubelet has not reported yet"
    )


@pytest.mark.parametrize("check", [False, True])
def test_a_user_who_may_not_patch(run, cluster, node, check):
    result = run(node, {DONGLE: 4}, check=check, kubeconfig=cluster.kubeconfig({"token": "reader-token"}))
    assert result["msg"] == (
        f'worker1: nodes "{node.name}" is forbidden: User "reader" cannot patch resource "nodes/status" in API group '
        f'"" at the cluster scope: give this user patch on nodes/status in a ClusterRole'
    )


def test_a_report_needs_no_right_to_patch(run, cluster, node):
    reader = cluster.kubeconfig({"token": "reader-token"})
    result = run(node, {DONGLE: 4}, state="reported", kubeconfig=reader)
    assert states(result) == {DONGLE: "not as declared: the next run patches it"}


def test_credentials_that_the_server_does_not_know(run, cluster, node):
    path = cluster.kubeconfig({"token": "wrong"})
    assert run(node, {DONGLE: 4}, kubeconfig=path)["msg"] == (
        f"worker1: the API server {cluster.server} does not accept the token of the user test: Unauthorized: give its "
        f"user a valid certificate, token or exec in {path}"
    )


def test_a_node_that_the_cluster_has_not_got(run, node):
    result = run(node, {DONGLE: 4}, node_name="elsewhere")
    assert result["msg"] == (
        "worker1: the cluster has no node elsewhere: set node_devices_node_name to its name there, "
        "or join the node first"
    )


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("api_only", [False, True])
def test_of_a_node_that_has_left_the_cluster_there_is_nothing_to_take_away(run, node, check, api_only):
    """Whoever takes a machine out of a cluster may do so before the uninstall, which has more to do there."""
    result = run(node, {DONGLE: 4}, (KVM,), node_name="gone", state="absent", check=check, api_only=api_only)
    assert (result["changed"], result["resources"], result["lingering"]) == (False, [], [])
    assert result["warnings"] == [
        "worker1: the cluster has no node gone, so nothing is removed there: if the node has another name, set "
        "node_devices_node_name and run again"
    ]


def test_an_api_server_that_is_away(run, cluster, node, unused_server):
    result = run(node, {DONGLE: 4}, kubeconfig=cluster.kubeconfig(server=unused_server))
    assert result["msg"] == (
        f"worker1: the API server {unused_server} does not answer: Connection refused: "
        "retry when the API server answers"
    )


def test_an_api_server_that_is_away_for_a_moment_while_the_kubelet_follows(run, node, monkeypatch):
    ask, missed = api.Api.node, []

    def fail_once(self, name):
        # The first look is the plan's.
        missed.append(name)
        if len(missed) == 2:
            raise api.Unavailable("it is restarted")
        return ask(self, name)

    monkeypatch.setattr(api.Api, "node", fail_once)
    result = run(node, {DONGLE: 4})
    assert result["changed"] is True
    assert len(missed) > 2
    assert node.extended == {DONGLE: "4"}


def test_a_damaged_memory_is_not_guessed(run, node):
    path = f"/metadata/annotations/{ANNOTATION.replace('/', '~1')}"
    node.patch("others", [{"op": "add", "path": path, "value": "{}"}])
    result = run(node, {DONGLE: 4})
    assert f"the node's annotation {ANNOTATION}, which records our resources, is damaged" in result["msg"]
    assert node.extended == {}


@pytest.mark.parametrize("kubelet", ["kubelet", "k3s", "kubelite"])
def test_a_node_that_only_the_api_reaches(run, node, kubelet):
    """The node object tells what a device plugin serves."""
    node.set_capacity(kubelet, KVM, "2")
    assert run(node, {DONGLE: 4}, api_only=True)["changed"] is True
    assert node.extended == {KVM: "2", DONGLE: "4"}
    # Its allocatable is the kubelet's, and what we patched is ours nevertheless.
    assert run(node, {DONGLE: 5}, api_only=True)["changed"] is True
    result = run(node, {KVM: 3}, api_only=True)
    assert result["msg"].startswith(f"worker1: {KVM}: a device plugin on this node serves it (capacity now: 2)")


def test_what_the_kubelet_has_written_again_is_not_waited_for(run, node):
    """Seen with Kubernetes 1.36.2: at its next look the kubelet writes the capacity again, for five minutes."""
    node.set_capacity("kubelet", KVM, "2")
    run(node, {}, (KVM,), api_only=True)
    node.not_forgotten = {KVM}
    eventually(lambda: node.read()["status"].get("allocatable", {}).get(KVM) == "0")
    next_look = threading.Timer(1, node.set_capacity, ("kubelet", KVM, "2"))
    next_look.start()
    # Longer than this test's own limit.
    result = run(node, {}, state="absent", api_only=True, timeout=3600)
    next_look.join()
    assert "failed" not in result
    assert result["lingering"] == [KVM]
    assert memory(node) == {"patched": {}, "served": [KVM]}


def test_what_the_kubelet_has_not_forgotten_goes_with_a_later_run(run, node):
    """Seen with Kubernetes 1.36.2: by the node object alone, what is not forgotten looks like what is."""
    node.set_capacity("kubelet", KVM, "2")
    run(node, {}, (KVM,), api_only=True)
    node.set_capacity("kubelet", DONGLE, "1")
    node.not_forgotten = {KVM}
    eventually(lambda: node.read()["status"].get("allocatable", {}).get(KVM) == "0")
    result = run(node, {}, state="absent", api_only=True, timeout=1)
    assert "failed" not in result
    assert result["lingering"] == [KVM]
    assert memory(node) == {"patched": {}, "served": [KVM]}
    node.not_forgotten = set()
    result = run(node, {}, state="absent", api_only=True)
    assert result["lingering"] == []
    assert KVM not in node.extended
    assert node.annotations == {"of": "others"}


def test_without_a_cluster_only_a_capacity_is_an_error(run, node):
    assert run(node, {}, (KVM,), kubeconfig=None)["changed"] is False
    assert "node_devices_kubeconfig: not set" in run(node, {DONGLE: 4}, kubeconfig=None)["msg"]
    assert run(node, {DONGLE: 4}, kubeconfig=None, state="absent")["changed"] is False
