"""Waiting for a node's pod, and the message about one that does not come."""

from __future__ import annotations

import itertools
import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Unavailable
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.telemetry import metrics
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import plugin_cli
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import rollout
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.rollout import Running

WANTED, OLDER = "a" * 64, "b" * 64
WARNED = {"type": "Warning", "message": "MountVolume.SetUp failed"}
RUNS = {"ready": True, "started": True, "state": {"running": {}}}


def pod(*, revision="1", ends=False, **status):
    metadata = {"name": "plugin-x", "namespace": "node-devices", "labels": {"controller-revision-hash": revision}}
    if ends:
        metadata["deletionTimestamp"] = "now"
    return {
        "metadata": metadata,
        "spec": {
            "containers": [
                {"name": "mesh", "ports": [{"containerPort": 15090}]},
                {"name": "plugin", "ports": [{"containerPort": 9819}]},
            ]
        },
        "status": {"containerStatuses": [status] if status else []},
    }


class Cluster:
    """A cluster whose state, or the error of a look, goes on by one at each look at its pods."""

    def __init__(self, *states, events=(), ready="True"):
        self.states, self.looked, self.events = list(states), 0, list(events)
        self.waiting, self.progresses = [], itertools.repeat(([], 0))
        tolerations = ({"key": "ours", "operator": "Exists"}, {"key": "b", "value": "1", "effect": "NoSchedule"})
        own = {"pool": "gpu"}
        self.deployment = types.SimpleNamespace(
            namespace="node-devices", name="plugin", tolerations=tolerations, node_selector=own, selector=own
        )
        condition = {"type": "Ready", "status": ready, "message": "Kubelet stopped posting node status."}
        self.node = {
            "metadata": {"name": "worker", "labels": dict(own)},
            "spec": {},
            "status": {"conditions": [condition], "nodeInfo": {"architecture": "arm64"}},
        }
        self.api = types.SimpleNamespace(node=lambda _name: self.node, list=self.list, merge=self.merge)

    def list(self, _place, fieldSelector):
        involved = {"name": fieldSelector.removeprefix("involvedObject.name=")}
        return [{"involvedObject": involved, **event} for event in self.events]

    waiting_for, warning = DaemonSet.waiting_for, DaemonSet.warning

    def pods(self, node):
        if not node:
            return self.waiting
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        if isinstance(state, Exception):
            raise state
        return state

    def is_selected(self, node):
        return DaemonSet.is_selected(self, node)

    def revision(self):
        return "1"

    def progress(self):
        return next(self.progresses)

    def merge(self, place, _content):
        assert place.resource == "pods"
        self.looked += 1


def looked(cluster):
    return rollout.look(cluster, cluster.node)


@pytest.fixture(autouse=True)
def no_rest(monkeypatch):
    monkeypatch.setattr(rollout, "_PAUSE", 0.001)


def wait(cluster, *answers, timeout=60):
    """By default with a longer timeout than a busy machine needs."""
    left = list(answers)
    return rollout.await_node(
        cluster, "worker", WANTED, lambda _pod: left.pop(0) if len(left) > 1 else left[0], timeout=timeout
    )


def why(cluster, *answers):
    with pytest.raises(DeploymentError) as caught:
        wait(cluster, *(answers or [Running("")]), timeout=0.05)
    return str(caught.value)


def test_until_it_is_ready_with_what_is_declared():
    old, ending, new = pod(revision="0", **RUNS), pod(ends=True, **RUNS), pod(**RUNS)
    cluster = Cluster([], [old], [old, ending], [{**new, "status": {}}], [new])
    answers = Running(""), Running(OLDER), Running(WANTED, ("not registered",)), Running(WANTED)
    assert wait(cluster, *answers) == new
    # A kubelet that has not looked at the ConfigMap yet is asked to, and not at each of our looks.
    assert cluster.looked == 1


def test_a_node_that_is_not_ready():
    assert why(Cluster([], ready="Unknown")) == (
        "after 0.05 s, the plugin's pod does not run: the node is not Ready (Kubelet stopped posting node status.): "
        "retry when it is Ready"
    )


def test_no_pod():
    events = [
        {"type": "Warning", "message": "violates\nPodSecurity", "lastTimestamp": "2"},
        {"type": "Normal", "message": "made it", "lastTimestamp": "3"},
        {"type": "Warning", "message": "older", "lastTimestamp": "1"},
    ]
    assert why(Cluster([], events=events)) == (
        "after 0.05 s, DaemonSet plugin has no pod on the node: violates PodSecurity"
    )


@pytest.mark.parametrize(
    ("taint", "keeps_off"),
    [
        ({"key": "ours", "value": "x", "effect": "NoExecute"}, None),
        ({"key": "b", "value": "1", "effect": "NoSchedule"}, None),
        ({"key": "b", "value": "2", "effect": "NoSchedule"}, "b=2:NoSchedule"),
        ({"key": "b", "value": "1", "effect": "NoExecute"}, "b=1:NoExecute"),
        ({"key": "c", "effect": "NoSchedule"}, "c:NoSchedule"),
        ({"key": "c", "effect": "PreferNoSchedule"}, None),
        # The DaemonSet's controller has its pods tolerate it.
        ({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}, None),
    ],
)
def test_a_taint_that_keeps_the_pod_off(taint, keeps_off):
    cluster = Cluster([])
    cluster.node["spec"]["taints"] = [taint]
    there_is_none = "after 0.05 s, DaemonSet plugin has no pod on the node"
    said = (
        f": the node has the taint {keeps_off}, which device_plugin_deployment.tolerations does not tolerate: add a "
        "toleration, or remove the taint"
    )
    assert why(cluster) == there_is_none + (said if keeps_off else "")


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (
            {"pool": "other"},
            "the node does not have the label pool=gpu: restore it, or remove the host from the inventory",
        ),
        (
            {"pool": "gpu", "nodedevices.kubernetes/device-plugin": "x"},
            "label nodedevices.kubernetes/device-plugin=x takes the node out of node_selector: remove the label",
        ),
    ],
)
def test_a_host_whose_label_left_its_profile(labels, said):
    cluster = Cluster([], events=[WARNED])
    cluster.node["metadata"]["labels"] = labels
    assert looked(cluster)["reason"] == (f"DaemonSet node-devices/plugin has no pod on the node: {said}")


def test_a_host_whose_own_label_was_removed():
    cluster = Cluster([])
    cluster.node["metadata"]["labels"], cluster.deployment.node_selector = {}, {}
    assert why(cluster).endswith("the node does not have the label pool=gpu: run site.yml")


def test_a_pod_that_waits_for_another_instance_says_why():
    event = {"type": "Warning", "message": "Startup probe failed: DaemonSet a/b serves this node's devices"}
    cluster = Cluster([pod(ready=False, started=False, state={"running": {}})], events=[event])
    assert looked(cluster)["reason"] == f"pod node-devices/plugin-x is not ready: {event['message']}"
    assert why(cluster).endswith(f"it does not run: {event['message']}")


def waiting_pod(node, **condition):
    """As the DaemonSet's controller makes it: a pod without a node, which says where it is meant to go."""
    made = pod()
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    made["spec"]["affinity"] = affinity
    made["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", **condition}] if condition else []}
    return made


def test_a_node_without_room_for_the_pod():
    cluster = Cluster([], events=[WARNED])
    cluster.waiting = [
        waiting_pod("other", message="x"),
        waiting_pod("worker", message="0/3 nodes are available:\n1 ."),
    ]
    said = "pod node-devices/plugin-x waits for the scheduler: 0/3 nodes are available: 1 ."
    assert why(cluster) == f"after 0.05 s, DaemonSet plugin has no pod on the node: {said}"
    assert looked(cluster)["reason"] == (f"DaemonSet node-devices/plugin has no pod on the node: {said}")
    cluster.waiting = [waiting_pod("worker")]
    assert why(cluster).endswith("waits for the scheduler: no attempt to schedule it yet")


def test_pods_of_other_nodes_that_fail_time_and_again_are_no_progress():
    cluster = Cluster([])
    cluster.progresses = itertools.cycle([([], 3), ([], 2)])
    assert why(cluster).startswith("after 0.05 s, DaemonSet")


def test_pods_that_are_replaced_are_progress():
    """Longer than the timeout, while others have their turn."""
    new = pod(**RUNS)
    cluster = Cluster(*[[]] * 60, [new])
    cluster.progresses = (([number], 0) for number in itertools.count())
    monotonic = itertools.count(0, 0.03)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollout.time, "monotonic", lambda: next(monotonic))
        assert wait(cluster, Running(WANTED), timeout=0.05) == new


def test_an_image_that_is_missing():
    waiting = {"reason": "ErrImageNeverPull", "message": 'Container image "x" is not present'}
    assert why(Cluster([pod(state={"waiting": waiting})])) == (
        'after 0.05 s, pod node-devices/plugin-x does not run: ErrImageNeverPull: Container image "x" is not present'
    )


def test_a_process_that_ends():
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    last = {"terminated": {"message": "cannot go on: x"}}
    assert why(Cluster([pod(state=state, lastState=last)])).endswith("CrashLoopBackOff: cannot go on: x")


CRASHED = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
LAST = {"terminated": {"message": "too many\nopen files"}}
LOG = "kubectl logs --previous plugin-x --namespace node-devices has its log"


def counted(restarts, container="1", **status):
    return pod(**{**RUNS, "name": "plugin", "restartCount": restarts, "containerID": container, **status})


@pytest.mark.parametrize(
    ("states", "why"),
    [
        # A new pod whose plugin ends, and one that has run for long.
        ([pod(), counted(0, state=CRASHED, lastState=LAST), counted(1, lastState=LAST)], "too many open files"),
        ([counted(4), counted(5, lastState={"terminated": {"reason": "OOMKilled"}})], f"OOMKilled: {LOG}"),
        # The kubelet starts it with the new configuration, but it ends again.
        ([counted(4, state=CRASHED, lastState=LAST), counted(5), counted(6, lastState={})], LOG),
        ([counted(4, state={"terminated": {}}), counted(5), counted(6)], LOG),
    ],
)
def test_a_plugin_that_ends_meanwhile_is_a_problem_also_if_it_runs_again(states, why):
    cluster = Cluster(*[[state] for state in states])
    with pytest.raises(DeploymentError) as caught:
        wait(cluster, *[Running("")] * (len(states) - 1), Running(WANTED))
    assert str(caught.value) == (
        "pod node-devices/plugin-x: the plugin ended while the play waited for it, and the kubelet starts it again: "
        f"{why}"
    )


@pytest.mark.parametrize(
    "states",
    [
        # Its end was before, and the play brings the configuration with which it runs.
        [counted(4, state=CRASHED, lastState=LAST), counted(5, lastState=LAST)],
        [counted(4, state={"terminated": {}}), counted(5)],
        [counted(4, lastState=LAST), counted(4, lastState=LAST)],
    ],
)
def test_an_end_from_before_is_no_problem(states):
    cluster = Cluster(*[[state] for state in states])
    assert wait(cluster, *[Running("")] * (len(states) - 1), Running(WANTED)) == states[-1]


def test_another_container_of_the_pod_may_restart():
    def mesh(restarts):
        both = counted(0)
        both["status"]["containerStatuses"].append({**RUNS, "name": "mesh", "restartCount": restarts})
        return both

    assert wait(Cluster([mesh(0)], [mesh(1)]), Running(""), Running(WANTED))


def test_a_plugin_that_has_ended_since_it_was_ready():
    ready = rollout.invocation_id(counted(1, "a"))
    assert rollout.restarted(Cluster([counted(1, "a")]), "worker", ready) == ""
    assert rollout.restarted(Cluster([]), "worker", ready) == ""
    said = (
        "pod node-devices/plugin-x: the plugin ended after it was ready, and the kubelet starts it again: "
        "too many open files"
    )
    assert rollout.restarted(Cluster([counted(2, "b", lastState=LAST)]), "worker", ready) == said
    assert rollout.restarted(Cluster([counted(1, "a", state=CRASHED, lastState=LAST)]), "worker", ready) == said
    assert rollout.restarted(Cluster([counted(1, "a", state=LAST)]), "worker", ready) == said
    # Somebody replaced the pod.
    other = counted(0, "c")
    other["metadata"]["name"] = "plugin-xy"
    assert rollout.restarted(Cluster([other]), "worker", ready) == ""


def test_a_process_that_is_killed_for_its_memory():
    """Its last words, which the kubelet takes from its log, are about something else."""
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    last = {"terminated": {"reason": "OOMKilled", "exitCode": 137, "message": "a look took 2 s"}}
    assert why(Cluster([pod(state=state, lastState=last)])).endswith("CrashLoopBackOff: OOMKilled: a look took 2 s")
    last = {"terminated": {"reason": "Error", "exitCode": 1, "message": "cannot go on: x"}}
    assert why(Cluster([pod(state=state, lastState=last)])).endswith("CrashLoopBackOff: cannot go on: x")


def test_a_pod_that_its_kubelet_has_evicted():
    evicted = pod()
    evicted["status"] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on\nresource: memory."}
    said = "pod node-devices/plugin-x has failed: Evicted: The node was low on resource: memory."
    assert why(Cluster([evicted], events=[WARNED])) == f"after 0.05 s, {said}"
    seen = looked(Cluster([evicted]))
    assert (seen["state"], seen["reason"]) == ("Failed", said)


def test_a_volume_that_is_missing():
    events = [{"type": "Warning", "message": "MountVolume.SetUp failed"}]
    for made in (pod(), pod(state={"waiting": {"reason": "ContainerCreating"}})):
        assert why(Cluster([made], events=events)).endswith("plugin-x has not started: MountVolume.SetUp failed")


def test_a_configuration_that_it_refuses():
    said = Running(OLDER, (), ("resources[0].name: is missing",))
    assert why(Cluster([pod(**RUNS)]), said) == (
        "pod node-devices/plugin-x refuses its configuration and runs with an older one: resources[0].name: is missing"
    )


def test_an_older_configuration():
    found = why(Cluster([pod(**RUNS)]), Running(OLDER))
    assert found.endswith("plugin-x runs with configuration bbbbbbbbbbbb, not aaaaaaaaaaaa")


def test_not_ready():
    found = why(Cluster([pod(**RUNS)]), Running(WANTED, ("a/b: the kubelet has no ListAndWatch stream open",)))
    assert found.endswith("plugin-x is not ready: a/b: the kubelet has no ListAndWatch stream open")


def test_what_a_pod_serves_on_its_node(monkeypatch):
    asked = []
    configuration = {"sha256": WANTED, "problems": ["no"]}
    report = {"plugin": {"configuration": configuration, "not_ready": ["a/b: no"], "version": "0.2.0"}}
    monkeypatch.setattr(plugin_cli, "answer", lambda action, command: asked.append((action, command)) or report)
    assert rollout.ask_on_node("action", "/p") == Running(WANTED, ("a/b: no",), ("no",), "0.2.0")
    assert asked == [("action", ["/p", "status", "-o", "json"])]
    report.update(plugin=None, problem="nothing listens")
    assert rollout.ask_on_node("action", "/p") == Running("", ("nothing listens",))


def test_the_node_object_shows_no_device_of_claims(monkeypatch):
    devices = [{"state": "healthy", "kubelet_ids": ["a::0", "a::1"]}, {"state": "unhealthy", "kubelet_ids": ["b"]}]
    resources = [
        {"name": "a/plugin", "api": "device_plugin", "registered": True, "devices": devices},
        {"name": "a/older", "registered": True, "devices": devices},
        {"name": "a/claimed", "api": "dra", "registered": False, "devices": devices},
    ]
    monkeypatch.setattr(plugin_cli, "answer", lambda _action, _command: {"plugin": {"resources": resources}})
    assert rollout.offered_on_node("action", "/p") == ({"a/plugin": 2, "a/older": 2}, ["a/claimed"])


def test_what_a_pod_serves_through_the_api_server():
    name = "node_device_plugin_configuration"
    # As it is served, with its help.
    text = (
        f'{name}_info{{sha256="{WANTED}"}} 1\n'
        f"# HELP {name}_refused 1 while the configuration file is refused\n{name}_refused 0\n"
        f'# HELP node_device_plugin_build_info x\nnode_device_plugin_build_info{{version="0.2.0",python="3.13.5"}} 1\n'
    )
    asked = []
    api = types.SimpleNamespace(text=lambda place: asked.append(place.path) or text)
    assert rollout.ask_through_api(api, pod(**RUNS)) == Running(WANTED, version="0.2.0")
    assert asked == ["/api/v1/namespaces/node-devices/pods/plugin-x:9819/proxy/metrics"]
    text = text.replace("refused 0", "refused 1")
    assert rollout.ask_through_api(api, pod()).problems == ("it refuses its configuration: see the pod's log",)


def test_what_a_pod_has_registered(monkeypatch):
    # As the plugin itself shows it.
    text = "\n".join(metrics.REGISTERED.render({("a/b",): 1, ("a/c",): 0}))
    cluster = Cluster([pod(), pod(**RUNS)])
    cluster.api.text = lambda _place: text
    assert rollout.served(cluster, "worker") == {"a/b"}
    assert rollout.served(Cluster([pod()]), "worker") == set()


def test_a_control_plane_that_is_away_for_a_moment():
    gone = Unavailable("the API server x does not answer: Connection refused: retry when the API server answers")
    new = pod(**RUNS)
    assert wait(Cluster(gone, [], gone, [new]), Running(WANTED)) == new
    with pytest.raises(Unavailable, match="retry when the API server answers"):
        wait(Cluster([], gone), Running(WANTED), timeout=0.05)


def test_until_its_predecessor_has_ended():
    old, new = pod(revision="0", ends=True, **RUNS), pod(**RUNS)
    assert wait(Cluster([old, new], [old, new], [new]), Running(WANTED)) == new
    expected = "after 0.05 s, pod node-devices/plugin-x is not ready: pod plugin-x, which it replaces, has not ended"
    assert why(Cluster([old, new]), Running(WANTED)) == expected


def test_a_pod_that_overlaps_has_started_when_it_is_ready():
    waiting, runs = pod(**{**RUNS, "ready": False}), pod(**RUNS)
    cluster = Cluster([waiting])
    rollout.await_start(cluster, "worker", timeout=60)
    for each in (waiting, runs):
        each["spec"]["containers"][1]["env"] = [{"name": "NODE_DEVICE_PLUGIN_OVERLAP", "value": "true"}]
    with pytest.raises(DeploymentError, match="is not ready"):
        rollout.await_start(Cluster([waiting]), "worker", timeout=0.05)
    rollout.await_start(Cluster([waiting], [waiting], [runs]), "worker", timeout=60)


def test_who_waits_keeps_the_lock_of_the_play():
    gone, renewed = Unavailable("the API server x does not answer: Connection refused"), []

    def renew():
        renewed.append(1)

    rollout.await_start(Cluster(gone, [], [pod(**RUNS)]), "worker", 60, renew)
    rollout.await_end(Cluster(gone, [pod(**RUNS)], []), "worker", 60, renew)
    cluster = Cluster(gone, [], [pod(**RUNS)])
    rollout.await_node(cluster, "worker", WANTED, lambda _pod: Running(WANTED), 60, renew)
    assert len(renewed) == 9


def test_neither_does_the_wait_for_a_start_or_an_end_give_up_then():
    gone = Unavailable("the API server x does not answer: Connection refused: retry when the API server answers")
    rollout.await_start(Cluster(gone, [], gone, [pod(**RUNS)]), "worker", timeout=60)
    rollout.await_end(Cluster(gone, [pod(**RUNS)], gone, []), "worker", timeout=60)
    for wait_for in (rollout.await_start, rollout.await_end):
        with pytest.raises(Unavailable):
            wait_for(Cluster(gone), "worker", timeout=0.05)
        with pytest.raises(DeploymentError):
            wait_for(Cluster([pod()]), "worker", timeout=0.05)


def test_a_pod_that_ends_is_none():
    found = why(Cluster([pod(ends=True, **RUNS)]), Running(WANTED))
    assert found == "after 0.05 s, DaemonSet plugin has no pod on the node"


def test_what_status_shows_of_a_pod():
    there = pod(**RUNS)
    (container,) = there["status"]["containerStatuses"]
    # As kubelets have it, and beside ours what a service mesh puts into each pod.
    container.update(name="plugin", image="example.com/plugin:1", imageID="example.com/plugin@sha256:abc")
    there["status"]["containerStatuses"].insert(0, {**container, "name": "mesh", "imageID": "other"})
    shown = {"name": "node-devices/plugin-x", "state": "Running", "reason": None, "architecture": "arm64"}
    content = {"image": "example.com/plugin:1", "image_id": "example.com/plugin@sha256:abc"}
    assert looked(Cluster([there])) == {**shown, **content}
    del there["status"]["containerStatuses"][1]
    assert looked(Cluster([there])) == {**shown, "image": None, "image_id": None}
    seen = looked(Cluster([pod(**{**RUNS, "ready": False})]))
    assert (seen["state"], seen["reason"]) == ("not ready", None)


@pytest.mark.parametrize(
    ("made", "events", "state", "reason"),
    [
        (
            [pod(state={"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x"'}})],
            (),
            "ImagePullBackOff",
            'pod node-devices/plugin-x does not run: ImagePullBackOff: Back-off pulling image "x"',
        ),
        ([pod()], [WARNED], "Pending", "pod node-devices/plugin-x has not started: MountVolume.SetUp failed"),
        ([], [WARNED], "none", "DaemonSet node-devices/plugin has no pod on the node: MountVolume.SetUp failed"),
        ([pod(ends=True, **RUNS)], (), "none", "DaemonSet node-devices/plugin has no pod on the node"),
        (
            [pod(revision="0", **RUNS)],
            (),
            "outdated",
            "pod node-devices/plugin-x does not have the DaemonSet's current template yet: at most max_unavailable "
            "pods are replaced at once, and a pod that does not become ready blocks the others",
        ),
    ],
)
def test_what_status_shows_of_a_pod_that_does_not_run(made, events, state, reason):
    seen = looked(Cluster(made, events=events))
    assert (seen["state"], seen["reason"]) == (state, reason)


@pytest.mark.parametrize("made", [[], [pod(**RUNS)]])
def test_what_is_known_of_pods_on_a_node_that_is_not_ready_is_from_before(made):
    seen = looked(Cluster(made, ready="Unknown"))
    assert seen["state"] in ("none", "Unknown")
    assert seen["reason"].startswith("the node is not Ready (Kubelet stopped posting node status.)")
