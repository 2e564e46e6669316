"""What is proven of a node through the Kubernetes API alone; a cluster whose kubelet gives what the test says."""

from __future__ import annotations

import copy
import datetime
import json
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import pods
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    Api,
    ApiError,
    LacksRights,
    Unavailable,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.devices.given import HELD_BY_ANOTHER_NAME
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.telemetry.exposition import Gauge
from ansible_collections.nodedevices.kubernetes.plugins.action import verification
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import api_verification, proof, rollout

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
CLAIMED = {**IMAGINARY, "name": "a.example/claimed", "api": "dra"}
NONE = {"name": "a.example/none", "devices": []}
FOUND = {"name": "a.example/found", "discover": {"paths": ["/dev/serial/by-id/*"]}}
DEVICE = {"mode": 0o20600, "uid": 0, "gid": 0, "device": [1, 8]}


class FakeCluster:
    """nodes' allocatable, other pods, and what a proof's container would print of a resource."""

    dry_run = False

    def __init__(self):
        self.allocatable, self.others, self.prints, self.made, self.pods = {}, [], {}, [], {}
        self.end = "Succeeded"
        self.classes, self.most_at_once = {}, 0
        #: What the metrics of the plugin's pod say.
        self.metrics = ""
        self.runtime, self.annotations = "containerd://2.1.9", {"of": "others"}
        self.slices, self.claims, self.made_claims = [], [], []
        #: The extendedResourceName of the one DeviceClass; None if the user may not read it.
        self.named = ""

    def node(self, _name):
        info = {"containerRuntimeVersion": self.runtime, "kubeletVersion": "v1.36.2"}
        metadata = {"name": "worker1", "annotations": dict(self.annotations)}
        return {"metadata": metadata, "status": {"allocatable": self.allocatable, "nodeInfo": info}}

    def merge(self, place, content):
        assert (place.kinds, place.name) == ("nodes", "worker1")
        changed = {**self.annotations, **content["metadata"]["annotations"]}
        self.annotations = {name: value for name, value in changed.items() if value is not None}

    def dry(self):
        dry = copy.copy(self)
        dry.classes = dict(self.classes)
        return dry

    def apply(self, place, content):
        assert place.path == f"/apis/scheduling.k8s.io/v1/priorityclasses/{place.name}"
        self.classes[place.name] = copy.deepcopy(content)
        return copy.deepcopy(content)

    def list(self, place, **selectors):
        if place.kinds == "resourceslices":
            assert selectors == {"fieldSelector": "spec.driver=nodedevices.kubernetes,spec.nodeName=worker1"}
            return self.slices
        if place.kinds == "resourceclaims":
            return self.claims
        if place.kinds == "events":
            assert (place.namespace, list(selectors)) == ("node-devices", ["fieldSelector"])
            return []
        if "fieldSelector" in selectors:
            assert selectors == {"fieldSelector": "spec.nodeName=worker1"}
            return self.others
        assert selectors == {"labelSelector": "app.kubernetes.io/name=node-device-proof"}
        return list(self.pods.values())

    def moment(self):
        return datetime.datetime.now(datetime.UTC)

    def get(self, place):
        if place.kinds == "daemonsets":
            return {"metadata": {"name": place.name, "uid": "u-1"}}
        if place.kinds == "priorityclasses":
            return copy.deepcopy(self.classes.get(place.name))
        if place.kinds == "deviceclasses":
            assert place.name == "claimed.a.example"
            if self.named is None:
                raise LacksRights("no")
            return {"spec": {"extendedResourceName": self.named} if self.named else {}}
        return self.pods.get(place.name)

    def create(self, place, content):
        if place.kinds == "resourceclaims":
            self.made_claims.append(content)
            return content
        assert (place.kinds, place.namespace) == ("pods", "node-devices")
        made = copy.deepcopy(content)
        made["metadata"].setdefault("name", f"{content['metadata'].get('generateName')}{len(self.made)}")
        made["metadata"]["uid"] = f"uid-{len(self.made)}"
        made["status"] = self.end if isinstance(self.end, dict) else {"phase": self.end}
        # How the admission of priorities does it: a pod that names no class has priority 0 and preempts.
        assert made["spec"]["priorityClassName"] in self.classes
        self.made.append(made)
        self.pods[made["metadata"]["name"]] = made
        self.most_at_once = max(self.most_at_once, len(self.pods))
        return made

    def delete(self, place, uid):
        if place.kinds == "priorityclasses":
            return self.classes.pop(place.name, None) is not None
        pod = self.pods.pop(place.name, None)
        assert pod is None or pod["metadata"]["uid"] == uid
        return pod is not None

    def text(self, place):
        if place.part == "proxy/metrics":
            assert (place.name, place.namespace) == ("plugin-0:9819", "node-devices")
            return self.metrics
        assert place.part == "log"
        (resource,) = [name for name in _asked(self.pods[place.name]) if "/" in name] or [CLAIMED["name"]]
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
    monkeypatch.setattr(Api, "of", lambda _path, _dry_run=False: fake)
    plugin = {
        "metadata": {"name": "plugin-0", "namespace": "node-devices"},
        "spec": {"containers": [{"name": "plugin", "ports": [{"containerPort": 9819}]}]},
    }
    monkeypatch.setattr(rollout, "newest", lambda _cluster, _node: plugin)
    monkeypatch.setattr(rollout, "is_started", lambda _pod: True)
    for module in (api_verification, proof):
        monkeypatch.setattr(module, "_PAUSE", 0.001)
    return fake


def verify(*resources, check=False, **arguments):
    action = object.__new__(verification.ActionModule)
    given = {
        "kubeconfig": "x",
        "declaration": {"configuration": {"resources": list(resources)}},
        "deployment": {"image": "example.com/plugin:1", "image_pull_policy": "Never", "image_pull_secrets": ["s"]},
        "timeout": 0.01,
        **arguments,
    }
    action._task = types.SimpleNamespace(args=given, check_mode=check)
    action._templar = types.SimpleNamespace(template=lambda value: value)
    return action.run(None, {"inventory_hostname": "worker1", "node_devices_api_only": True})


def row(*resources, **arguments):
    (found,) = verify(*resources, **arguments)["resources"]
    return found


def test_ansible_itself_touches_no_node_for_it():
    """Where only the API reaches a node, there is nobody to make a temporary directory."""
    action = object.__new__(verification.ActionModule)
    action._task = types.SimpleNamespace(args={"state": "absent"}, check_mode=False, async_val=0)
    # Whatever else is asked of the connection ends the test.
    action._connection = types.SimpleNamespace(_shell=types.SimpleNamespace(tmpdir=None))
    assert action.run(None, {"inventory_hostname": "worker1"})["changed"] is False


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
            "shares": 0,
            "absent": [],
        }
    ]
    assert cluster.pods == {}, "a proof's pod was left"


def _slice(*devices, pool="worker1/claimed.a.example"):
    return {"spec": {"pool": {"name": pool}, "devices": [{"name": each} for each in devices]}}


def _claim(name, *devices, users=(), pool="worker1/claimed.a.example"):
    results = [{"driver": "nodedevices.kubernetes", "pool": pool, "device": each} for each in devices]
    status = {"allocation": {"devices": {"results": results}}}
    status["reservedFor"] = [{"resource": "pods", "name": each} for each in users]
    return {"metadata": {"name": name, "namespace": "default"}, "status": status}


@pytest.mark.parametrize("named", ["", "example.com/other", None])
def test_a_container_that_has_its_device_by_a_claim(cluster, named):
    cluster.named = named
    cluster.slices = [_slice("one"), _slice("two"), _slice("one", pool="worker1/other.a.example")]
    cluster.claims = [
        _claim("web", "one", users=["web"]),
        _claim("other", "one", "two", pool="worker2/claimed.a.example"),
    ]
    cluster.prints = {"a.example/claimed": printed({"DEV_0": "/two"})}
    found = row(CLAIMED)
    assert (found["state"], found["healthy"], found["seen"]) == ("proven", 2, ["two"])
    (claim,), (pod,) = cluster.made_claims, cluster.made
    (request,) = claim["spec"]["devices"]["requests"]
    assert (request["exactly"]["deviceClassName"], request["exactly"]["count"]) == ("claimed.a.example", 1)
    assert pod["spec"]["resourceClaims"][0]["resourceClaimName"] == claim["metadata"]["name"]
    assert claim["metadata"]["namespace"] == "node-devices"


def test_a_container_that_has_its_device_by_a_claim_that_the_scheduler_makes(cluster):
    cluster.slices, cluster.named = [_slice("one", "two")], "a.example/claimed"
    cluster.prints = {"a.example/claimed": printed({"DEV_0": "/two"})}
    assert row(CLAIMED)["state"] == "proven"
    (pod,) = cluster.made
    assert (cluster.made_claims, _asked(pod)) == ([], {"memory": "96Mi", "a.example/claimed": "1"})
    assert "resourceClaims" not in pod["spec"]


def test_a_pod_without_a_claim_runs_without_its_device(cluster):
    limits = {"resources": {"limits": {"a.example/claimed": "2", "a.example/plugins": "1"}}}
    by_name = {
        "metadata": {"name": "by-name", "namespace": "team"},
        "spec": {"containers": [{"name": "main", **limits}, {"name": "beside"}]},
        "status": {"phase": "Running"},
    }
    mapping = {"containerName": "main", "resourceName": "a.example/claimed", "requestName": "container-0-request-0"}
    scheduled = {**by_name, "metadata": {"name": "scheduled", "namespace": "team"}}
    scheduled["status"] = {"phase": "Running", "extendedResourceClaimStatus": {"requestMappings": [mapping]}}
    ended = {**by_name, "status": {"phase": "Succeeded"}}
    cluster.slices, cluster.others = [_slice("one", "two")], [by_name, scheduled, ended]
    cluster.prints = {"a.example/claimed": printed({"DEV_0": "/two"})}
    result = verify(CLAIMED)
    # Such a pod uses no device.
    assert (result["resources"][0]["state"], result["problems"]) == ("proven", [])
    assert result["warnings"] == [
        "worker1: a.example/claimed: team/by-name runs without a device: its container main requests 2, but the "
        "resource (api: dra) needs a claim, which only the scheduler makes: create the pod again without "
        "spec.nodeName, and not as a static pod"
    ]
    # While devices are held through the device plugin, the pod may have one of them.
    labels = ("resource", "state", "reason")
    held = ("a.example/claimed", "unhealthy", HELD_BY_ANOTHER_NAME)
    cluster.metrics = "\n".join(Gauge("node_device_plugin_devices", "Devices", labels).render({held: 1.0})) + "\n"
    cluster.slices = [_slice("one")]
    assert "warnings" not in verify(CLAIMED)


@pytest.mark.parametrize(
    ("slices", "claims", "state", "detail"),
    [
        ([], [], "failed", "the node has no ResourceSlice of it: the log of the plugin's pod has the reason"),
        ([_slice("one")], [], "failed", "expected 2 healthy devices in the node's ResourceSlices, found 1"),
        ([_slice("one", "two")], [_claim("a", "one", "two", users=["y", "x"])], "in use", "by default/x, default/y"),
    ],
)
def test_what_slices_and_claims_show(cluster, slices, claims, state, detail):
    # Left by a former device plugin.
    cluster.allocatable = {"a.example/claimed": "0"}
    cluster.slices, cluster.claims = slices, claims
    found = row(CLAIMED)
    assert (found["state"], found["detail"]) == (state, detail)


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
    # Without a class it would have priority 0, and take the place of pods of a negative one.
    made = cluster.classes[spec["priorityClassName"]]
    assert (made["value"], made["preemptionPolicy"], made["globalDefault"]) == (-1_000_000, "Never", False)
    assert made["metadata"] == {"name": "node-device-proof", "labels": {"app.kubernetes.io/managed-by": "nodedevices"}}
    # The API server refuses a policy that is not its class's.
    assert not {"priority", "preemptionPolicy"} & set(spec)
    (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert term == {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker1"]}]}
    assert spec["restartPolicy"] == "Never"
    assert pod["metadata"]["ownerReferences"][0]["uid"] == "u-1"
    assert _asked(pod)["a.example/crand"] == "1"


@pytest.mark.parametrize(
    ("resource", "shown", "state", "detail"),
    [
        (
            IMAGINARY,
            None,
            "failed",
            "the node object does not list it, because no plugin registered it with the kubelet",
        ),
        (IMAGINARY, "1", "failed", "expected 2 healthy devices in the node object's allocatable, found 1"),
        (NONE, "0", "empty", ""),
        (NONE, None, "failed", "the node object does not list it, because no plugin registered it with the kubelet"),
        (FOUND, "3", "unproven", "its devices are discovered on the node, and the API does not list them"),
        (
            {**FOUND, "min_devices": 4},
            "3",
            "failed",
            "expected at least 4 healthy devices (min_devices) in the node object's allocatable, found 3",
        ),
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
    empty = row(optional)
    # The capacity counts the shares of a device that is away, too.
    assert (empty["state"], empty["capacity"], empty["healthy"]) == ("empty", 2, 0)
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


def _pod(name, shares, phase="Running", resource="a.example/imaginary", **spec):
    limits = {"resources": {"limits": {resource: str(shares), "cpu": "1"}}}
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
    # A sidecar's stays with it, beside the init containers that come after it, too.
    sidecar = {**init[0], "restartPolicy": "Always"}
    for containers, shares in (([sidecar], 3), ([*init, sidecar], 3), ([sidecar, sidecar], 5), ([sidecar, *init], 4)):
        assert pods._asked(_pod("a", 1, initContainers=containers)["spec"]) == {"a.example/imaginary": shares}
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


RANDOM = {"id": "random", "nodes": [{"path": "/dev/random"}]}
LAMP = {"id": "lamp", "nodes": [{"path": "/dev/lamp"}]}


@pytest.mark.parametrize(
    "gives",
    [
        {"devices": [RANDOM]},
        # The variable and the annotation come from the kubelet, also if the runtime ignores CDI.
        {"devices": [RANDOM], "env": {"R": "x"}},
        {"devices": [{"id": "random"}], "annotations": {"example.com/x": "y"}},
        # The API does not show what the other program's spec gives.
        {"devices": [{"id": "random", "cdi_devices": ["nvidia.com/gpu=0"]}]},
    ],
)
def test_what_every_container_has_proves_nothing_and_costs_no_pod(cluster, gives):
    cluster.allocatable = {"a.example/random": "1"}
    found = verify({"name": "a.example/random", **gives})
    (only,) = found["resources"]
    assert (only["state"], only["seen"], found["problems"], cluster.made) == ("unproven", [], [], [])
    assert only["detail"].endswith("set container_edits.env, for example to [DEVICE=given], and verify again")
    assert cluster.annotations == {"of": "others"}, "nothing is remembered"
    problem = f"a.example/random: unproven: {only['detail']}"
    assert verify({"name": "a.example/random", **gives}, require_proof=True)["problems"] == [problem]
    cluster.others = [_pod("a", 1, resource="a.example/random")]
    assert row({"name": "a.example/random", **gives}) == only, "whoever uses it"


def test_something_else_of_the_edits_proves_a_node_that_every_container_has(cluster):
    cluster.allocatable = {"a.example/random": "1"}
    cluster.prints = {"a.example/random": printed({"DEVICE": "given"}, paths={"/dev/random": DEVICE})}
    edited = {"name": "a.example/random", "devices": [RANDOM], "container_edits": {"env": ["DEVICE=given"]}}
    found = row(edited)
    assert (found["state"], found["seen"]) == ("proven", ["random"])


@pytest.mark.parametrize("there", [True, False])
def test_a_device_that_every_container_has_is_not_one_of_two_alike(cluster, there):
    cluster.allocatable = {"a.example/two": "2"}
    lamp = {"mode": 0o20600, "uid": 0, "gid": 0, "device": [4, 64]} if there else "no such file or directory"
    cluster.prints = {"a.example/two": printed(paths={"/dev/random": DEVICE, "/dev/lamp": lamp})}
    found = row({"name": "a.example/two", "devices": [RANDOM, LAMP]})
    assert (found["state"], found["seen"]) == (("proven", ["lamp"]) if there else ("unproven", []))


def test_devices_that_look_alike(cluster):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.prints = {"a.example/imaginary": printed({"DEV_0": "same"})}
    alike = {**IMAGINARY, "env": {"DEV_{index}": "same"}}
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
            "mount /crand: expected a mount, found nothing",
        ),
        ("usage: node-device-plugin\n", "the proof's pod printed no report: usage: node-device-plugin"),
        ('{"env": 1}\n', 'the proof\'s pod printed no report: {"env": 1}'),
        ("", "the proof's pod printed no report: nothing"),
    ],
)
def test_what_a_container_lacks(cluster, says, detail):
    cluster.allocatable = {"a.example/crand": "1"}
    cluster.prints = {"a.example/crand": says}
    report = verify(CHARACTER)
    assert report["problems"] == [f"a.example/crand: {detail}"]
    assert cluster.pods == {}


WAITING = "its pod is Pending after 0.01 s"
KEPT_OUT = {"type": "PodScheduled", "status": "False", "message": "0/3 nodes are available: 1 Too many pods"}
PREEMPTED = {"type": "DisruptionTarget", "status": "True", "message": "preempting to accommodate a higher priority pod"}


def _waits(reason, message=""):
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "containerStatuses": [{"state": state}]}


@pytest.mark.parametrize(
    ("status", "state", "detail"),
    [
        # What is wrong with a device, or with what gives it.
        (
            {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "Allocate failed due to x"},
            "failed",
            "pod node-device-proof-0 failed: Allocate failed due to x",
        ),
        (
            {"phase": "Failed", "containerStatuses": [{"state": {"terminated": {"reason": "Error"}}}]},
            "failed",
            "pod node-device-proof-0 failed: Error",
        ),
        (
            _waits("CreateContainerError", "unresolvable CDI devices"),
            "failed",
            "expected a container, found none after 0.01 s: CreateContainerError unresolvable CDI devices",
        ),
        # What says nothing of it. A plugin that restarts offers no device for a moment.
        (
            {
                "phase": "Failed",
                "reason": "UnexpectedAdmissionError",
                "message": "Allocate failed due to no healthy devices present; cannot allocate unhealthy devices a, "
                "which is unexpected",
            },
            "unproven",
            "pod node-device-proof-0 failed: Allocate failed due to no healthy devices present; cannot allocate "
            "unhealthy devices a, which is unexpected",
        ),
        (
            {"phase": "Pending", "conditions": [KEPT_OUT]},
            "unproven",
            f"{WAITING}: 0/3 nodes are available: 1 Too many pods",
        ),
        (_waits("ErrImageNeverPull"), "unproven", f"{WAITING}: ErrImageNeverPull"),
        ({"phase": "Pending"}, "unproven", f"{WAITING}: no reason was reported"),
        (
            {"phase": "Failed", "reason": "Preempting", "message": "Preempted in order to admit critical pod"},
            "unproven",
            "pod node-device-proof-0 failed: Preempted in order to admit critical pod",
        ),
        (
            {"phase": "Failed", "reason": "OutOfpods", "message": "Node didn't have enough resource: pods"},
            "unproven",
            "pod node-device-proof-0 failed: Node didn't have enough resource: pods",
        ),
    ],
)
def test_pods_that_do_not_run(cluster, status, state, detail):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.end = status
    report = verify(IMAGINARY)
    (found,) = report["resources"]
    assert (found["state"], found["detail"]) == (state, detail)
    says = f"a.example/imaginary: {detail}"
    assert report["problems"] == ([says] if state == "failed" else [])
    warning = f"worker1: a.example/imaginary is unproven: {detail}"
    assert report.get("warnings", []) == ([warning] if state == "unproven" else [])
    assert cluster.pods == {}


def test_a_pod_whose_place_somebody_else_needs(cluster, monkeypatch):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.end = {"phase": "Running"}
    does, looks = cluster.get, iter(range(9))

    def preempt(place):
        pod = does(place)
        if place.kinds == "pods" and pod:
            look = next(looks)
            if look == 1:
                pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                pod["status"]["conditions"] = [PREEMPTED]
        return pod

    monkeypatch.setattr(cluster, "get", preempt)
    found = row(IMAGINARY, timeout=30)
    name = "pod node-device-proof-0 was deleted before the proof, for example by preemption"
    assert (found["state"], found["detail"]) == ("unproven", f"{name}: {PREEMPTED['message']}")


def test_what_needs_a_proof_is_a_problem_without_one_where_that_is_asked_for(cluster):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.end = {"phase": "Pending", "conditions": [KEPT_OUT]}
    report = verify(IMAGINARY, require_proof=True)
    says = f"a.example/imaginary: unproven: {WAITING}: {KEPT_OUT['message']}"
    assert (report["problems"], "warnings" in report) == ([says], False)
    cluster.others = [_pod("a", 2)]
    assert verify(IMAGINARY, require_proof=True)["problems"] == ["a.example/imaginary: in use: by default/a"]
    assert verify(IMAGINARY)["problems"] == []


def test_a_few_pods_at_a_time_and_little_patience_once_some_waited_in_vain(cluster, monkeypatch):
    names = [f"a.example/r{number}" for number in range(20)]
    resources = [{"name": name, "devices": [{"id": f"d{name[11:]}"}], "env": {f"R{name[11:]}": "x"}} for name in names]
    cluster.allocatable = dict.fromkeys(names, "1")
    cluster.prints = {name: printed({f"R{name[11:]}": "x"}) for name in names}
    assert {each["state"] for each in verify(*resources)["resources"]} == {"proven"}
    assert (len(cluster.made), cluster.most_at_once) == (20, 8)
    cluster.end = {"phase": "Pending", "conditions": [KEPT_OUT]}
    monkeypatch.setattr(proof, "_AGAIN", 0.0)
    details = [each["detail"] for each in verify(*resources)["resources"]]
    assert [detail.split(" after ")[1].split(" s")[0] for detail in details] == ["0.01"] * 8 + ["0"] * 12


def test_a_class_of_somebody_else_and_a_missing_right_are_reasons(cluster, monkeypatch):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.classes = {"node-device-proof": {"metadata": {"name": "node-device-proof"}, "value": 5}}
    found = row(IMAGINARY)
    assert (found["state"], "priorityclass node-device-proof belongs to others" in found["detail"]) == (
        "unproven",
        True,
    )
    cluster.classes = {}

    def refuse(*_arguments):
        raise LacksRights("give this user patch on priorityclasses.scheduling.k8s.io in a ClusterRole")

    monkeypatch.setattr(cluster, "apply", refuse)
    found = row(IMAGINARY)
    assert (found["state"], found["detail"].split(" in ")[0]) == (
        "unproven",
        "give this user patch on priorityclasses.scheduling.k8s.io",
    )
    assert cluster.made == []


def test_an_uninstall_takes_the_class_and_what_is_left_of_the_node(cluster):
    for name, node in (("one", "worker1"), ("two", "worker2")):
        annotations = {"nodedevices.kubernetes/proof-of": node}
        cluster.pods[name] = {"metadata": {"name": name, "uid": f"uid-{name}", "annotations": annotations}}
    cluster.pods["one"]["metadata"]["uid"] = "uid-one"
    cluster.classes = {"node-device-proof": proof.priority_class()}
    cluster.classes["node-device-proof"]["metadata"]["uid"] = "u-2"
    result = verify(state="absent")
    assert (result["changed"], result["what"]) == (True, ["priorityclass node-device-proof"])
    assert (cluster.classes, list(cluster.pods)) == ({}, ["two"])
    assert verify(state="absent")["changed"] is False
    # Of others, and of a cluster that is not there, it says so and goes on.
    cluster.classes = {"node-device-proof": {"metadata": {"name": "node-device-proof", "uid": "x"}}}
    assert verify(state="absent")["changed"] is False
    assert list(cluster.classes) == ["node-device-proof"]
    assert verify(state="absent", kubeconfig="")["changed"] is False


def test_the_pod_goes_where_the_api_server_refuses_to_show_it(cluster, monkeypatch):
    cluster.allocatable = {"a.example/imaginary": "2"}

    def refuse(_place):
        raise ApiError("give this user get on pods/log in a Role")

    monkeypatch.setattr(cluster, "text", refuse)
    found = row(IMAGINARY)
    assert (found["state"], found["detail"]) == ("unproven", "give this user get on pods/log in a Role")
    assert cluster.pods == {}


@pytest.mark.parametrize("call", ["node", "get", "text"])
def test_an_api_server_that_is_away_for_a_moment(cluster, monkeypatch, call):
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.prints = {"a.example/imaginary": printed({"DEV_0": "/one"})}
    does, times = getattr(cluster, call), iter(range(3))

    def be_away(place):
        is_waited_for = getattr(place, "kinds", "") not in ("daemonsets", "priorityclasses")
        if is_waited_for and next(times, None) is not None:
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
        if getattr(place, "kinds", "") in ("daemonsets", "priorityclasses"):
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
    monkeypatch.setattr(proof, "_GOING", 1.0)
    assert verify(IMAGINARY)["resources"][0]["state"] == "proven"


def test_what_plays_left_that_died_is_taken_away(cluster):
    def left(seconds, node):
        made = datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=seconds)
        annotations = {"nodedevices.kubernetes/proof-of": node}
        name = f"{node}-{seconds}"
        metadata = {"name": name, "uid": f"uid-{name}", "annotations": annotations}
        cluster.pods[name] = {"metadata": {**metadata, "creationTimestamp": f"{made:%Y-%m-%dT%H:%M:%SZ}"}}

    # A proof of this timeout lives for 240 s more.
    for seconds, node in ((241, "worker1"), (10, "worker1"), (301, "worker2")):
        left(seconds, node)
    cluster.allocatable = {"a.example/imaginary": "2"}
    cluster.prints = {"a.example/imaginary": printed({"DEV_0": "/one"})}
    assert row(IMAGINARY)["state"] == "proven"
    assert sorted(cluster.pods) == ["worker1-10", "worker2-301"]


def test_a_pod_that_restarted_since_the_play_saw_it_is_a_problem(cluster, monkeypatch):
    asked = []

    def restarted(of_cluster, node, invocation):
        asked.append((of_cluster.deployment.image, node, invocation))
        return "the plugin ended"

    monkeypatch.setattr(rollout, "restarted", restarted)
    assert verify()["problems"] == []
    assert verify(invocation="plugin-0 1")["problems"] == ["the plugin ended"]
    assert asked == [("example.com/plugin:1", "worker1", "plugin-0 1")]


def test_without_a_kubeconfig_and_in_check_mode(cluster):
    assert verify(IMAGINARY, check=True)["skipped"] is True
    assert verify(IMAGINARY, kubeconfig="")["msg"] == (
        "worker1: node_devices_kubeconfig: not set, but only the Kubernetes API reaches this node: set it to a "
        "kubeconfig file on the controller"
    )
    assert cluster.made == []


def test_what_is_held_by_another_name_is_in_use_and_not_missed(cluster):
    """The plugin says so in its metrics; which pod it is, these do not say."""
    cluster.allocatable = {"a.example/imaginary": "1"}
    labels = ("resource", "state", "reason")
    held = ("a.example/imaginary", "unhealthy", HELD_BY_ANOTHER_NAME)
    cluster.metrics = "\n".join(Gauge("node_device_plugin_devices", "Devices", labels).render({held: 1.0})) + "\n"
    result = verify(IMAGINARY)
    (row,) = result["resources"]
    assert (row["state"], row["healthy"], result["problems"]) == ("in use", 1, [])
    assert row["detail"] == "1 held by another name; the log of the plugin's pod names the pods"
    assert cluster.made == []
    # Another one is missing for another reason.
    cluster.allocatable = {"a.example/imaginary": "0"}
    assert verify(IMAGINARY)["resources"][0]["state"] == "failed"
