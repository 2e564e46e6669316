"""What the plugin's pod may do to node objects: what its token is for, and nothing else; against a real API server."""

from __future__ import annotations

import contextlib
import itertools
import time

import plugin_pods
import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    ApiError,
    LacksRights,
    Place,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.node_readiness import (
    CONDITION,
    Offered,
    Taint,
    ToldNode,
)
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.daemon.node_report import NodeReport

pytestmark = pytest.mark.parametrize("cluster", ["real_api_server"], indirect=True)

MERGE, PATCH, STRATEGIC = plugin_pods.MERGE, "application/json-patch+json", "application/strategic-merge-patch+json"
TAINT = "nodedevices.kubernetes/not-ready:NoSchedule"
OURS = {"key": "nodedevices.kubernetes/not-ready", "effect": "NoSchedule"}
OTHERS = {"key": "example.com/dedicated", "value": "a", "effect": "NoSchedule"}
DEVICE = "example.com/dev"
READY = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ok"}
PARTS = ("capacity", "allocatable")
_numbers = itertools.count()


class Pod(plugin_pods.Pod):
    """The plugin's pod on a node, with its token."""

    def report(self, counts, taint=TAINT, condition=True):
        """Look once, as the running plugin does."""
        told = ToldNode(self.node.name, Taint.of(taint) if taint else None, condition)
        report = NodeReport(told, lambda: Offered(counts), lambda: True, self.connect)
        return report._look(Offered(counts))

    def patch(self, content, kind=MERGE, node=None, part=""):
        """Returns the status code and the message."""
        return self.ask("PATCH", f"/api/v1/nodes/{(node or self.node).name}{part}", content, kind)


@pytest.fixture
def pod(cluster, tmp_path):
    """Creates the rights as ``manifests`` renders them, and pods: pod(node, **settings)."""
    namespace, stack = f"rights-{next(_numbers)}", contextlib.ExitStack()
    has_rights = False

    def make(node, *, startup_taint=TAINT, node_condition=True, **bound):
        nonlocal has_rights
        if not has_rights:
            settings = {"startup_taint": startup_taint, "node_condition": node_condition}
            stack.enter_context(plugin_pods.rights(cluster, namespace, **settings))
            has_rights = True
        return Pod(cluster, namespace, node, tmp_path, **bound)

    with stack:
        yield make


@pytest.fixture
def node(cluster):
    """A node that has joined with the startup taint, and whose kubelet has reported its devices."""
    return joined(cluster, {"cpu": "2", DEVICE: "2"})


def joined(cluster, allocatable):
    found = cluster.node({"cpu": "2"})
    cluster.ask("PATCH", f"/api/v1/nodes/{found.name}", {"spec": {"taints": [OTHERS, OURS]}}, MERGE)
    kubelet_reports(found, allocatable)
    return found


def kubelet_reports(node, allocatable):
    node.patch("kubelet", [{"op": "add", "path": "/status/allocatable", "value": allocatable}])
    node.patch("kubelet", [{"op": "add", "path": "/status/conditions", "value": [READY]}])


def enforced(pod):
    """Wait until the API server enforces the policy, which takes a moment after its creation."""
    since = time.monotonic()
    while pod.patch({"metadata": {"labels": {"a": "b"}}})[0] == 200:
        pod.cluster.ask("PATCH", f"/api/v1/nodes/{pod.node.name}", {"metadata": {"labels": {"a": None}}}, MERGE)
        assert time.monotonic() < since + 20
        time.sleep(0.1)
    print(f"the policy is enforced after {time.monotonic() - since:.1f} s")
    return pod


def condition_of(node):
    return next((each for each in node.read()["status"]["conditions"] if each["type"] == CONDITION), {})


def keys_of_taints(node):
    return [each["key"] for each in node.read()["spec"].get("taints", [])]


def test_a_pod_removes_the_startup_taint_of_its_node_once_the_devices_are_allocatable(cluster, pod):
    node = joined(cluster, {"cpu": "2", DEVICE: "1"})
    plugin = enforced(pod(node))
    verdict = plugin.report({DEVICE: 2, "example.com/none": 0})
    assert verdict.reason == "NotAllocatable"
    assert condition_of(node)["status"] == "False"
    assert condition_of(node)["message"] == (
        f"the node object does not show yet: {DEVICE} (offered: 2, allocatable: 1), "
        "example.com/none (offered: 0, allocatable: none)"
    )
    assert keys_of_taints(node) == [OTHERS["key"], OURS["key"]]
    since = condition_of(node)["lastTransitionTime"]
    node.patch("kubelet", [{"op": "add", "path": "/status/allocatable/example.com~1none", "value": "0"}])
    node.patch("kubelet", [{"op": "add", "path": "/status/allocatable/example.com~1dev", "value": "2"}])
    time.sleep(1.1)
    assert plugin.report({DEVICE: 2, "example.com/none": 0}).is_ready
    assert keys_of_taints(node) == [OTHERS["key"]]
    condition = condition_of(node)
    assert (condition["status"], condition["reason"]) == ("True", "Allocatable")
    assert condition["lastTransitionTime"] > since
    # The kubelet's own condition stays.
    assert READY.items() <= node.read()["status"]["conditions"][0].items()


@pytest.mark.parametrize(("taint", "condition"), [(TAINT, True), (TAINT, False), (None, True)])
def test_a_look_at_a_node_that_is_right_writes_nothing(node, pod, taint, condition):
    plugin = enforced(pod(node, startup_taint=taint, node_condition=condition))
    plugin.report({DEVICE: 2}, taint, condition)
    before = node.read()
    assert plugin.report({DEVICE: 2}, taint, condition).is_ready
    assert node.read() == before
    assert (OURS["key"] in keys_of_taints(node)) == (taint is None)
    assert bool(condition_of(node)) == condition


@pytest.mark.parametrize(("taint", "condition"), [(TAINT, False), (None, True)])
def test_a_pod_has_no_right_that_its_settings_do_not_need(node, pod, taint, condition):
    api = pod(node, startup_taint=taint, node_condition=condition).connect()
    with pytest.raises(LacksRights):
        api.merge(Place("nodes", node.name, part="status" if taint else ""), {})
    with pytest.raises(LacksRights):
        api.node(node.name)
    with pytest.raises(LacksRights):
        api.list(Place("nodes"))


OF_OTHERS = "the plugin must not change the node's "
REFUSED = {
    "another taint": ("", PATCH, [{"op": "remove", "path": "/spec/taints/0"}], "other taints"),
    "every taint": ("", MERGE, {"spec": {"taints": None}}, "other taints"),
    "a taint's value": ("", PATCH, [{"op": "replace", "path": "/spec/taints/0/value", "value": "b"}], "other taints"),
    "a new taint": (
        "",
        PATCH,
        [{"op": "add", "path": "/spec/taints/-", "value": {"key": "a", "effect": "NoExecute"}}],
        "other taints",
    ),
    "the order": ("", MERGE, {"spec": {"taints": [OURS, OTHERS]}}, "other taints"),
    "the provider's id": ("", MERGE, {"spec": {"providerID": "a://b"}}, "spec"),
    "the pods' addresses": ("", MERGE, {"spec": {"podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"]}}, "spec"),
    "a label": ("", MERGE, {"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}, "metadata"),
    "an annotation": ("", MERGE, {"metadata": {"annotations": {"of": "us"}}}, "metadata"),
    "an annotation less": ("", MERGE, {"metadata": {"annotations": None}}, "metadata"),
    "a finalizer": ("", MERGE, {"metadata": {"finalizers": ["example.com/stays"]}}, "metadata"),
    "an owner": (
        "",
        MERGE,
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]}},
        "metadata",
    ),
    "a label by the status": ("/status", MERGE, {"metadata": {"labels": {"a": "b"}}}, "metadata"),
    "an annotation by the status": ("/status", MERGE, {"metadata": {"annotations": {"a": "b"}}}, "metadata"),
    "a capacity": ("/status", MERGE, {"status": {"capacity": {DEVICE: "100"}}}, "status"),
    "an allocatable": ("/status", MERGE, {"status": {"allocatable": {DEVICE: "100"}}}, "status"),
    "an address": (
        "/status",
        MERGE,
        {"status": {"addresses": [{"type": "InternalIP", "address": "1.2.3.4"}]}},
        "status",
    ),
    "the kubelet's port": (
        "/status",
        MERGE,
        {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}},
        "status",
    ),
    "another condition": (
        "/status",
        STRATEGIC,
        {"status": {"conditions": [{"type": "Ready", "status": "False"}]}},
        "other conditions",
    ),
    "fewer capacities": ("/status", MERGE, {"status": {"capacity": None}}, "status"),
    "schedulable again": ("", MERGE, {"spec": {"unschedulable": None}}, "spec"),
    "no condition": ("/status", MERGE, {"status": {"conditions": None}}, "other conditions"),
    "two conditions": (
        "/status",
        PATCH,
        [{"op": "add", "path": "/status/conditions/-", "value": {"type": CONDITION, "status": "True"}}] * 2,
        "other conditions",
    ),
    "a capacity beside the condition": (
        "/status",
        STRATEGIC,
        {"status": {"capacity": {DEVICE: "9"}, "conditions": [{"type": CONDITION, "status": "True"}]}},
        "status",
    ),
    "a label beside the taint": (
        "",
        PATCH,
        [{"op": "remove", "path": "/spec/taints/1"}, {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}],
        "metadata",
    ),
}


def test_everything_else_is_refused(cluster, node, pod):
    plugin = enforced(pod(node))
    code, said = plugin.patch({"spec": {"unschedulable": True}})
    assert (code, said.endswith(OF_OTHERS + "spec")) == (422, True), said
    # As kubectl cordon does.
    cluster.ask("PATCH", f"/api/v1/nodes/{node.name}", {"spec": {"unschedulable": True}}, MERGE)
    before = node.read()
    for what, (part, kind, content, of) in REFUSED.items():
        code, said = plugin.patch(content, kind, part=part)
        assert (code, said.endswith(OF_OTHERS + of)) == (422, True), f"{what}: {code} {said}"
    assert node.read() == before
    for method, path in (("DELETE", ""), ("GET", ""), ("GET", "/proxy/pods")):
        assert plugin.ask(method, f"/api/v1/nodes/{node.name}{path}")[0] == 403


def test_without_a_setting_its_change_is_refused_too(node, pod):
    plugin = enforced(pod(node, startup_taint="example.com/a:NoExecute", node_condition=True))
    code, said = plugin.patch([{"op": "remove", "path": "/spec/taints/1"}], PATCH)
    assert (code, said.endswith(OF_OTHERS + "other taints")) == (422, True)


def test_a_token_is_for_its_own_node(cluster, node, pod):
    plugin, other = enforced(pod(node)), joined(cluster, {"cpu": "2", DEVICE: "2"})
    before = other.read()
    for content, kind, part in (
        ({}, MERGE, ""),
        ([{"op": "remove", "path": "/spec/taints/1"}], PATCH, ""),
        ({"status": {"conditions": [{"type": CONDITION, "status": "True"}]}}, STRATEGIC, "/status"),
    ):
        code, said = plugin.patch(content, kind, other, part)
        assert (code, said.endswith("the token is of a pod on another node")) == (422, True), said
    assert other.read() == before
    # A pod on the other node may do all that.
    assert pod(other).report({DEVICE: 2}).is_ready
    assert keys_of_taints(other) == [OTHERS["key"]]


def test_a_token_that_names_no_node_is_refused(node, pod):
    enforced(pod(node))
    plugin = pod(node, expirationSeconds=600)
    code, said = plugin.patch({})
    assert (code, "the token names no node" in said) == (422, True), said
    with pytest.raises(ApiError, match="the token names no node"):
        plugin.report({DEVICE: 2})


def test_the_policy_can_judge_a_large_node(cluster, node, pod):
    """The API server refuses a request whose comparison costs too much."""
    plugin = enforced(pod(node))
    images = [
        {"names": [f"registry.example.com/{'path/' * 20}image-{number}@sha256:{'a' * 64}"] * 2, "sizeBytes": number}
        for number in range(1000)
    ]
    more = {"annotations": {"a": "x" * 250_000}, "labels": {f"example.com/{number}": "b" * 60 for number in range(200)}}
    cluster.ask("PATCH", f"/api/v1/nodes/{node.name}", {"metadata": more}, MERGE)
    devices = {f"example.com/dev-{number}": "100" for number in range(200)}
    node.patch(
        "kubelet",
        [
            {"op": "add", "path": "/status/images", "value": images},
            *({"op": "add", "path": f"/status/{part}", "value": {"cpu": "2", **devices}} for part in PARTS),
        ],
    )
    assert plugin.report(dict.fromkeys(devices, 100)).is_ready
    assert keys_of_taints(node) == [OTHERS["key"]]
    assert condition_of(node)["status"] == "True"
