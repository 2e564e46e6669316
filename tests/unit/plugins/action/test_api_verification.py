"""What is proven of a node through the Kubernetes API alone; a cluster whose kubelet gives what the test says."""

from __future__ import annotations

import copy
import datetime
import json
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import kubeconfig
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import ApiError, Unavailable
from ansible_collections.nodedevices.kubernetes.plugins.action import api_verification
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import proof

IMAGINARY = {
    "name": "a.example/imaginary",
    "devices": [{"id": each, "properties": {"value": f"/{each}"}} for each in ("one", "two")],
    "env": {"DEV_{index}": "{value}"},
}
CHARACTER = {
    "name": "a.example/crand",
    "container_edits": {"mounts": [{"host_path": "tmpfs", "container_path": "/crand", "type": "tmpfs"}]},
    "devices": [{"id": "crand0", "nodes": [{"path": "/dev/crand0", "host_path": "/dev/random"}]}],
}
NONE = {"name": "a.example/none", "devices": []}
FOUND = {"name": "a.example/found", "discover": {"paths": ["/dev/serial/by-id/*"]}}
DEVICE = {"mode": 0o20600, "uid": 0, "gid": 0, "device": [1, 8]}


class FakeCluster:
    """nodes' allocatable, other pods, and what a proof's container would print of a resource."""

    def __init__(self):
        self.allocatable, self.others, self.prints, self.made, self.pods = {}, [], {}, [], {}
        self.end = "Succeeded"
        self.runtime, self.annotations = "containerd://2.1.9", {"of": "others"}

    def node(self, _name):
        info = {"containerRuntimeVersion": self.runtime, "kubeletVersion": "v1.36.2"}
        metadata = {"name": "worker1", "annotations": dict(self.annotations)}
        return {"metadata": metadata, "status": {"allocatable": self.allocatable, "nodeInfo": info}}

    def merge(self, place, content, dry_run):
        assert (place.kinds, place.name, dry_run) == ("nodes", "worker1", False)
        changed = {**self.annotations, **content["metadata"]["annotations"]}
        self.annotations = {name: value for name, value in changed.items() if value is not None}

    def list(self, _place, **selectors):
        if "fieldSelector" in selectors:
            assert selectors == {"fieldSelector": "spec.nodeName=worker1"}
            return self.others
        assert selectors == {"labelSelector": "app.kubernetes.io/name=node-device-proof"}
        return list(self.pods.values())

    def get(self, place):
        if place.kinds == "daemonsets":
            return {"metadata": {"name": place.name, "uid": "u-1"}}
        return self.pods.get(place.name)

    def create(self, place, content):
        assert (place.kinds, place.namespace) == ("pods", "node-devices")
        made = copy.deepcopy(content)
        made["metadata"]["name"] = f"{content['metadata']['generateName']}{len(self.made)}"
        made["metadata"]["uid"] = f"uid-{len(self.made)}"
        made["status"] = self.end if isinstance(self.end, dict) else {"phase": self.end}
        self.made.append(made)
        self.pods[made["metadata"]["name"]] = made
        return made

    def delete(self, place, uid):
        pod = self.pods.pop(place.name, None)
        assert pod is None or pod["metadata"]["uid"] == uid
        return pod is not None

    def text(self, place):
        assert place.part == "log"
        (resource,) = [name for name in _asked(self.pods[place.name]) if "/" in name]
        printed = self.prints[resource]
        return printed if isinstance(printed, str) else json.dumps(printed) + "\n"


def _asked(pod):
    return pod["spec"]["containers"][0]["resources"]["limits"]


def printed(env=(), mounts=(), paths=()):
    return {"env": dict(env), "mounts": dict(mounts), "paths": dict(paths)}


@pytest.fixture
def cluster(monkeypatch):
    fake = FakeCluster()
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(kubeconfig, "read", lambda _path: None)
    monkeypatch.setattr(api_verification, "Api", lambda _access: fake)
    for module in (api_verification, proof):
        monkeypatch.setattr(module, "_PAUSE", 0.001)
    return fake


def verify(*resources, check=False, **arguments):
    action = object.__new__(api_verification.ActionModule)
    given = {
        "kubeconfig": "x",
        "declaration": {"configuration": {"resources": list(resources)}},
        "deployment": {"image": "example.com/plugin:1", "image_pull_policy": "Never", "image_pull_secrets": ["s"]},
        "timeout": 0.01,
        **arguments,
    }
    action._task = types.SimpleNamespace(args=given, check_mode=check)
    return action.run(None, {"inventory_hostname": "worker1"})


def row(*resources, **arguments):
    (found,) = verify(*resources, **arguments)["resources"]
    return found


def test_a_container_that_has_its_device(cluster):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.prints = {"a.example/imaginary": printed({"DEV_0": "/two", "PATH": "/bin"})}
    result = verify(IMAGINARY)
    assert result["changed"] is True, "it is remembered"
    assert verify(IMAGINARY)["changed"] is False
    report = result
    assert (report["runtime"], report["kubelet"], report["problems"]) == ("containerd 2.1.9", "v1.36.2", [])
    assert report["resources"] == [
        {
            "resource": "a.example/imaginary",
            "capacity": 2,
            "healthy": 2,
            "seen": ["two"],
            "state": "proven",
            "detail": "",
        }
    ]
    assert cluster.pods == {}, "a proof's pod was left"


def test_the_pod_is_the_nodes_and_has_no_power(cluster):
    cluster.allocatable = {"a.example/crand": "1"}
    node = {"paths": {"/dev/crand0": DEVICE}, "mounts": {"/crand": "tmpfs"}}
    cluster.prints = {"a.example/crand": printed(**node)}
    assert row(CHARACTER)["state"] == "proven"
    (pod,) = cluster.made
    spec = pod["spec"]
    (container,) = spec["containers"]
    assert container["args"] == ["seen", "/dev/crand0"]
    assert (container["image"], container["imagePullPolicy"]) == ("example.com/plugin:1", "Never")
    assert spec["imagePullSecrets"] == [{"name": "s"}]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    # The scheduler gives it what is free: a pod with a node's name would be put beside one that it has just placed.
    assert "nodeName" not in spec
    assert "priorityClassName" not in spec, "it would preempt"
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker1"]}]}
    assert spec["restartPolicy"] == "Never"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert _asked(pod)["a.example/crand"] == "1"


@pytest.mark.parametrize(
    ("resource", "shown", "state", "detail"),
    [
        (IMAGINARY, None, "failed", "the node object does not show it: the kubelet has no registration of it"),
        (IMAGINARY, "1", "failed", "expected 2 healthy devices in the node object's allocatable, found 1"),
        (NONE, "0", "empty", ""),
        (NONE, None, "failed", "the node object does not show it: the kubelet has no registration of it"),
        (FOUND, "3", "not proven", "its devices are discovered on the node, and the API does not say which they are"),
        (FOUND, "0", "empty", ""),
    ],
)
def test_what_needs_no_pod(cluster, resource, shown, state, detail):
    cluster.allocatable = {} if shown is None else {resource["name"]: shown}
    found = verify(resource)
    assert (found["resources"][0]["state"], found["resources"][0]["detail"]) == (state, detail)
    assert found["problems"] == ([f"{resource['name']}: {detail}"] if state == "failed" else [])
    assert cluster.made == []


def test_devices_that_may_be_missing(cluster):
    optional = {**CHARACTER, "replicas": 2, "devices": [{**CHARACTER["devices"][0], "required": False}]}
    cluster.allocatable = {"a.example/crand": "0"}
    assert row(optional)["state"] == "empty"
    cluster.allocatable = {"a.example/crand": "3"}
    assert row(optional)["detail"] == "expected 0 to 2 healthy devices in the node object's allocatable, found 3"


PROVEN = "nodedevices.kubernetes/proven"


def test_what_was_proven_is_proven_again_when_something_about_it_changed(cluster):
    cluster.allocatable = {"a.example/imaginary": "2", "a.example/crand": "1"}
    cluster.prints = {
        "a.example/imaginary": printed({"DEV_0": "/two"}),
        "a.example/crand": printed(paths={"/dev/crand0": DEVICE}, mounts={"/crand": "tmpfs"}),
    }

    def states(*resources, **arguments):
        before = len(cluster.made)
        result = verify(*resources, proofs="unproven", **arguments)
        rows = {each["resource"].partition("/")[2]: each["state"] for each in result["resources"]}
        assert len(cluster.made) - before == sum(state in ("proven", "failed") for state in rows.values())
        return rows, result["changed"]

    assert states(IMAGINARY, CHARACTER) == ({"imaginary": "proven", "crand": "proven"}, True)
    assert set(cluster.annotations) == {"of", PROVEN}
    assert states(IMAGINARY, CHARACTER) == ({"imaginary": "proven before", "crand": "proven before"}, False)
    again = {**IMAGINARY, "replicas": 1, "container_limit": 1}
    assert states(again, CHARACTER) == ({"imaginary": "proven", "crand": "proven before"}, True)
    cluster.runtime = "containerd://2.2.0"
    assert states(again, CHARACTER) == ({"imaginary": "proven", "crand": "proven"}, True)
    image = {"image": "example.com/plugin:2"}
    assert states(again, CHARACTER, deployment=image) == ({"imaginary": "proven", "crand": "proven"}, True)
    # What verify.yml asks for is proven all the same, and a proof that fails is made again.
    assert row(IMAGINARY)["state"] == "proven"
    cluster.prints["a.example/imaginary"] = printed()
    assert row(IMAGINARY)["state"] == "failed"
    assert cluster.annotations == {"of": "others"}
    assert states(IMAGINARY)[0] == {"imaginary": "failed"}


def test_what_is_in_use_now_stays_proven(cluster):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.prints = {"a.example/imaginary": printed({"DEV_0": "/two"})}
    assert row(IMAGINARY)["state"] == "proven"
    cluster.others = [_pod("a", 2)]
    assert (row(IMAGINARY, proofs="unproven")["state"], PROVEN in cluster.annotations) == ("in use", True)
    cluster.others = []
    assert row(IMAGINARY, proofs="unproven")["state"] == "proven before"


def _pod(name, shares, phase="Running", **spec):
    limits = {"resources": {"limits": {"a.example/imaginary": str(shares), "cpu": "1"}}}
    metadata = {"namespace": "default", "name": name}
    return {"metadata": metadata, "spec": {"containers": [limits], **spec}, "status": {"phase": phase}}


def test_devices_that_pods_hold_are_not_competed_for(cluster):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.others = [_pod("b", 1), _pod("a", 1), _pod("gone", 5, phase="Succeeded")]
    found = row(IMAGINARY)
    assert (found["state"], found["detail"]) == ("in use", "by default/a, default/b")
    assert cluster.made == []
    # An init container's share is given back before the others start.
    init = [{"resources": {"limits": {"a.example/imaginary": "2"}}}]
    cluster.others = [_pod("a", 1, initContainers=init)]
    assert row(IMAGINARY)["state"] == "in use"
    cluster.others = [_pod("a", 1)]
    cluster.prints = {"a.example/imaginary": printed({"DEV_0": "/one"})}
    assert row(IMAGINARY, devices="all")["seen"] == ["one"]
    assert _asked(cluster.made[0])["a.example/imaginary"] == "1", "it asked for more than is free"


def test_all_devices_where_all_are_free(cluster):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.prints = {"a.example/imaginary": printed({"DEV_0": "/one", "DEV_1": "/two"})}
    assert row(IMAGINARY, devices="all")["seen"] == ["one", "two"]
    assert _asked(cluster.made[0])["a.example/imaginary"] == "2"
    cluster.prints = {"a.example/imaginary": printed({"DEV_0": "/one"})}
    assert row({**IMAGINARY, "container_limit": 1}, devices="all")["seen"] == ["one"]
    assert _asked(cluster.made[1])["a.example/imaginary"] == "1"


def test_devices_that_look_alike(cluster):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.prints = {"a.example/imaginary": printed()}
    alike = {"name": "a.example/imaginary", "devices": [{"id": "one"}, {"id": "two"}]}
    found = row(alike)
    assert (found["state"], found["seen"]) == ("proven", [])
    assert found["detail"] == "one of one, two, which look alike in a container"


@pytest.mark.parametrize(
    ("says", "detail"),
    [
        (
            printed({}, {"/crand": "tmpfs"}, {"/dev/crand0": "no such file or directory"}),
            "in a container: device node /dev/crand0: no such file or directory",
        ),
        (
            printed({}, {}, {"/dev/crand0": {**DEVICE, "mode": 0o100600}}),
            "in a container: /dev/crand0: expected a device node, found another kind of file; "
            "mount /crand: expected, found nothing",
        ),
        ("usage: node-device-plugin\n", "the proof's pod did not say what it has: usage: node-device-plugin"),
        ('{"env": 1}\n', 'the proof\'s pod did not say what it has: {"env": 1}'),
        ("", "the proof's pod did not say what it has: nothing"),
    ],
)
def test_what_a_container_lacks(cluster, says, detail):
    cluster.allocatable = {"a.example/crand": "1"}
    cluster.prints = {"a.example/crand": says}
    report = verify(CHARACTER)
    assert report["problems"] == [f"a.example/crand: {detail}"]
    assert cluster.pods == {}


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed due to x"},
            "pod node-device-proof-0 failed: Allocate failed due to x",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available"}],
            },
            "expected a container, found none after 0.01 s: 0/3 nodes are available",
        ),
        (
            {"phase": "Pending", "containerStatuses": [{"state": {"waiting": {"reason": "ErrImageNeverPull"}}}]},
            "expected a container, found none after 0.01 s: ErrImageNeverPull",
        ),
        (
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"reason": "Error"}}}]},
            "pod node-device-proof-0 failed: Error",
        ),
        ({"phase": "Pending"}, "expected a container, found none after 0.01 s: nobody says why"),
    ],
)
def test_pods_that_do_not_run(cluster, status, detail):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.end = status
    assert row(IMAGINARY)["detail"] == detail
    assert cluster.pods == {}


def test_the_pod_goes_where_the_api_server_refuses_to_show_it(cluster, monkeypatch):
    cluster.allocatable = {"a.example/imaginary": "2"}

    def refuse(_place):
        raise ApiError("give this user get on pods/log in a Role")

    monkeypatch.setattr(cluster, "text", refuse)
    result = verify(IMAGINARY)
    assert (result["failed"], result["msg"]) == (True, "worker1: give this user get on pods/log in a Role")
    assert cluster.pods == {}


@pytest.mark.parametrize("call", ["node", "get", "text"])
def test_an_api_server_that_is_away_for_a_moment(cluster, monkeypatch, call):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.prints = {"a.example/imaginary": printed({"DEV_0": "/one"})}
    does, times = getattr(cluster, call), iter(range(3))

    def be_away(place):
        if (getattr(place, "kinds", "") != "daemonsets") and next(times, None) is not None:
            raise Unavailable("it does not answer")
        return does(place)

    monkeypatch.setattr(cluster, call, be_away)
    result = verify(IMAGINARY, timeout=30)
    assert result["resources"][0]["state"] == "proven"
    assert next(times, None) is None
    assert cluster.pods == {}


@pytest.mark.parametrize("call", ["node", "get"])
def test_an_api_server_that_stays_away(cluster, monkeypatch, call):
    cluster.allocatable = {"a.example/imaginary": "2"}
    does = getattr(cluster, call)

    def be_away(place):
        if getattr(place, "kinds", "") == "daemonsets":
            return does(place)
        raise Unavailable("it does not answer")

    monkeypatch.setattr(cluster, call, be_away)
    result = verify(IMAGINARY)
    assert (result["failed"], result["msg"]) == (True, "worker1: it does not answer")


def test_what_was_found_counts_where_its_pod_cannot_be_deleted(cluster, monkeypatch):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.prints = {"a.example/imaginary": printed({"DEV_0": "/one"})}

    def be_away(_place, _uid):
        raise Unavailable("it does not answer")

    monkeypatch.setattr(cluster, "delete", be_away)
    assert verify(IMAGINARY)["resources"][0]["state"] == "proven"


def test_what_plays_left_that_died_is_taken_away(cluster):
    def left(seconds, node):
        made = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
        annotations = {"nodedevices.kubernetes/proof-of": node}
        name = f"{node}-{seconds}"
        metadata = {"name": name, "uid": f"uid-{name}", "annotations": annotations}
        cluster.pods[name] = {"metadata": {**metadata, "creationTimestamp": f"{made:%Y-%m-%dT%H:%M:%SZ}"}}

    for seconds, node in ((301, "worker1"), (10, "worker1"), (301, "worker2")):
        left(seconds, node)
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.prints = {"a.example/imaginary": printed({"DEV_0": "/one"})}
    assert row(IMAGINARY)["state"] == "proven"
    assert sorted(cluster.pods) == ["worker1-10", "worker2-301"]


def test_without_a_kubeconfig_and_in_check_mode(cluster):
    assert verify(IMAGINARY, check=True)["skipped"] is True
    assert verify(IMAGINARY, kubeconfig="")["msg"] == (
        "worker1: what only the Kubernetes API reaches is proven through it: set node_devices_kubeconfig"
    )
    assert cluster.made == []
