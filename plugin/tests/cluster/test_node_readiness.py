"""What the node object says about the node's devices, and which patches it needs."""

from __future__ import annotations

import datetime
import json

import pytest

from node_device_plugin.cluster import in_pod, node_readiness
from node_device_plugin.cluster.kubeconfig import KubeconfigError
from node_device_plugin.cluster.node_readiness import CONDITION, Offered, Taint, Verdict, condition_change, judge

NOW = datetime.datetime(2026, 11, 26, 12, 0, 0, tzinfo=datetime.timezone.utc)
READY = {"type": "Ready", "status": "True"}
RIGHT = Verdict(True, "Allocatable", "a")
WRONG = Verdict(False, "NotAllocatable", "b")


def node(allocatable=None, taints=(), conditions=(READY,)):
    return {
        "spec": {"taints": list(taints)} if taints else {},
        "status": {
            **({} if allocatable is None else {"allocatable": allocatable}),
            **({"conditions": list(conditions)} if conditions else {}),
        },
    }


def patched(content, operations):
    """The object after a JSON patch of the few operations that are used here."""
    content = json.loads(json.dumps(content))
    for each in operations:
        *parents, last = each["path"].strip("/").split("/")
        parent = content
        for key in parents:
            parent = parent[int(key) if isinstance(parent, list) else key]
        key = len(parent) if last == "-" else int(last) if isinstance(parent, list) else last
        if each["op"] == "test":
            assert parent[key] == each["value"]
        elif each["op"] == "add":
            parent.insert(key, each["value"])
        elif each["op"] == "replace":
            parent[key] = each["value"]
        else:
            del parent[key]
    return content


@pytest.mark.parametrize(
    ("counts", "allocatable", "reason"),
    [
        ({}, None, "Allocatable"),
        ({"a/b": 2}, {"a/b": "2"}, "Allocatable"),
        ({"a/b": 1000}, {"a/b": "1k"}, "Allocatable"),
        ({"a/b": 0}, {"a/b": "0"}, "Allocatable"),
        ({"a/b": 2}, {"a/b": "2", "c/d": "7"}, "Allocatable"),
        # The kubelet has not written the resource yet, or not the last device.
        ({"a/b": 0}, {"cpu": "2"}, "NotAllocatable"),
        ({"a/b": 2}, None, "NotAllocatable"),
        ({"a/b": 2}, {"a/b": "1"}, "NotAllocatable"),
        # A device was lost, and the node object still shows it.
        ({"a/b": 1}, {"a/b": "2"}, "NotAllocatable"),
        ({"a/b": 2, "c/d": 1}, {"a/b": "2"}, "NotAllocatable"),
    ],
)
def test_the_node_object_decides(counts, allocatable, reason):
    verdict = judge(node(allocatable), Offered(counts))
    assert (verdict.reason, verdict.is_ready) == (reason, reason == "Allocatable")


def test_a_resource_that_is_not_registered_is_not_ready_whatever_the_node_object_shows():
    verdict = judge(node({"a/b": "2"}), Offered({"a/b": 2}, ["a/b"]))
    assert verdict == (False, "NotRegistered", "not registered with the kubelet: a/b")


def test_a_message_names_ten_resources():
    verdict = judge(node({}), Offered({"a/%02d" % number: 1 for number in range(12)}))
    assert "a/09 (offered: 1, allocatable: none) and 2 more" in verdict.message
    assert "a/10" not in verdict.message


def test_only_the_startup_taint_goes():
    ours, taint = {"key": "a/b", "value": "x", "effect": "NoSchedule"}, Taint("a/b", "NoSchedule")
    others = [{"key": "a/b", "effect": "NoExecute"}, {"key": "a/c", "effect": "NoSchedule"}]
    before = node(taints=[*others, ours])
    assert patched(before, node_readiness.taint_removal(before, taint))["spec"]["taints"] == others
    assert node_readiness.taint_removal(node(taints=others), taint) == []
    assert node_readiness.taint_removal(node(), taint) == []


@pytest.mark.parametrize("text", ["", "a/b", "a/b:", ":NoSchedule", "a/b:Never", "a/b=c", "a/b:noschedule"])
def test_what_is_no_taint(text):
    with pytest.raises(ValueError, match="must be KEY:EFFECT with the effect NoSchedule or PreferNoSchedule or"):
        Taint.of(text)


def condition(status="True", heartbeat=0.0, **others):
    at = (NOW - datetime.timedelta(seconds=heartbeat)).strftime("%Y-%m-%dT%H:%M:%SZ")
    verdict = RIGHT if status == "True" else WRONG
    return {
        "type": CONDITION,
        "status": status,
        "reason": verdict.reason,
        "message": verdict.message,
        "lastHeartbeatTime": at,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        **others,
    }


def after(verdict, *conditions, lasted=0.0):
    """The conditions after the change; None for no change."""
    before = node(conditions=conditions)
    operations = condition_change(before, verdict, NOW, lasted)
    return patched(before, operations)["status"]["conditions"] if operations else None


def test_a_new_condition_comes_behind_the_others():
    new = condition(lastTransitionTime="2026-11-26T12:00:00Z")
    assert after(RIGHT, READY) == [READY, new]
    # Its kubelet has not reported.
    assert after(RIGHT) is None


def test_a_right_condition_is_written_again_only_for_its_heartbeat():
    assert after(RIGHT, condition(heartbeat=299), READY) is None
    assert after(RIGHT, condition(heartbeat=300), READY) == [condition(), READY]
    # As after a clock that was wrong, or a hand that wrote nonsense.
    assert after(RIGHT, condition(heartbeat=-10)) == [condition()]
    assert after(RIGHT, condition(lastHeartbeatTime="yesterday")) == [condition()]
    assert after(WRONG, condition("False", heartbeat=10)) is None
    assert after(WRONG, condition("False", message="other")) == [condition("False")]


def test_a_true_condition_becomes_false_only_if_the_difference_lasts():
    assert after(WRONG, condition(heartbeat=900), lasted=14.9) is None
    assert after(WRONG, condition(), lasted=15.0) == [condition("False", lastTransitionTime="2026-11-26T12:00:00Z")]
    assert after(RIGHT, condition("False")) == [condition(lastTransitionTime="2026-11-26T12:00:00Z")]


def test_a_condition_is_removed():
    before = node(conditions=[condition(), READY])
    assert patched(before, node_readiness.condition_removal(before))["status"]["conditions"] == [READY]
    assert node_readiness.condition_removal(node()) == []


def test_the_access_of_a_pod(tmp_path):
    variables = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}
    with pytest.raises(KubeconfigError, match="the variable KUBERNETES_SERVICE_HOST is not set"):
        in_pod.access({}, str(tmp_path))
    with pytest.raises(KubeconfigError, match=r"cannot use the service account in .*: .*token"):
        in_pod.access(variables, str(tmp_path))
    (tmp_path / "token").write_text("one\n")
    (tmp_path / "ca.crt").write_text("no certificate")
    with pytest.raises(KubeconfigError, match="cannot use the service account in"):
        in_pod.access(variables, str(tmp_path))
