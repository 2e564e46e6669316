"""Proofs whose pods do not start at once, and what killed plays left of their proofs."""

from __future__ import annotations

import datetime

import pytest
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import proof

NOW = datetime.datetime(2024, 5, 1, 12, 0, tzinfo=datetime.UTC)
KIND = proof.Kind("node-devices", "pause:1", ())


def pod(uid, made, node="w1", lifetime=300):
    metadata = {"name": uid, "uid": uid, "creationTimestamp": made, "annotations": {proof._NODE: node}}
    return {"metadata": metadata, "spec": {"activeDeadlineSeconds": lifetime}}


class Api:
    """An API server whose clock says ``now``."""

    def __init__(self, now, *pods):
        self.now, self.pods, self.deleted = now, pods, []

    def list(self, _place, **_selectors):
        return self.pods

    def moment(self):
        return self.now

    def delete(self, _place, uid):
        self.deleted.append(uid)


@pytest.mark.parametrize(
    ("now", "deleted"),
    [
        (NOW, ["left"]),
        # The clock of another machine says nothing about the pods.
        (None, []),
    ],
)
def test_only_the_servers_clock_decides_what_a_killed_play_left(now, deleted):
    """This machine's clock is years ahead of these pods."""
    api = Api(
        now,
        pod("left", "2024-05-01T11:54:59Z"),
        pod("of-a-play", "2024-05-01T11:55:00Z"),
        pod("of-a-slow-play", "2024-05-01T11:54:00Z", lifetime=360),
        pod("of-another-node", "2024-05-01T11:00:00Z", node="w2"),
    )
    proof.Proofs(api, KIND, "w1", 60)._remove_leftovers()
    assert api.deleted == deleted


class Waiting:
    """An API server with a pod that starts once its kubelet was asked to look at it again."""

    moment = staticmethod(lambda: None)

    def __init__(self, *, claim, events=(), schedulers=False):
        """schedulers: whether the scheduler made the claim."""
        spec = {"nodeName": "w1", **({"resourceClaims": [{"name": "devices"}]} if claim and not schedulers else {})}
        waits = [{"state": {"waiting": {"reason": "ContainerCreating"}}}]
        status = {"phase": "Pending", "containerStatuses": waits}
        if schedulers:
            status["extendedResourceClaimStatus"] = {"resourceClaimName": "p-extended-resources-x"}
        self.pod = {"metadata": {"name": "p", "namespace": "n"}, "spec": spec, "status": status}
        self.events, self.asked = list(events), []

    def get(self, _place):
        return self.pod

    def list(self, place, fieldSelector):
        assert (place.resource, place.namespace, fieldSelector) == ("events", KIND.namespace, "involvedObject.name=p")
        return self.events

    def merge(self, place, content):
        self.asked.append((place.name, place.namespace, content["metadata"]["annotations"]))
        self.pod["status"] = {"phase": "Running"}


@pytest.fixture
def soon(monkeypatch):
    monkeypatch.setattr(proof, "_PREPARE_AGAIN", 0.01)
    monkeypatch.setattr(proof, "_PAUSE", 0.001)


def waited(api, timeout):
    outcomes, _is_late = proof.Proofs(api, KIND, "w1", timeout)._await({"a.example/b": api.pod}, timeout)
    return outcomes


@pytest.mark.parametrize("schedulers", [False, True])
def test_the_kubelet_is_asked_to_prepare_a_claim_again(soon, schedulers):
    api = Waiting(claim=True, schedulers=schedulers)
    assert waited(api, 60) == {}
    ((name, namespace, annotations),) = api.asked
    assert (name, namespace, len(annotations)) == ("p", "n", 1)


def test_a_pod_that_waits_for_something_else_is_left_alone_and_its_event_is_told(soon):
    said = {"type": "Warning", "message": "no room on\nthe disk", "involvedObject": {"name": "p"}}
    api = Waiting(claim=False, events=[said])
    why = "its pod is Pending after 0.05 s: no room on the disk"
    assert waited(api, 0.05) == {"a.example/b": proof.Outcome(unproven=why)}
    assert api.asked == []


def test_without_the_right_to_ask_it_waits(soon, monkeypatch):
    api = Waiting(claim=True)

    def refuse(_place, _content):
        raise proof.ApiError("no right")

    monkeypatch.setattr(api, "merge", refuse)
    assert waited(api, 0.05)["a.example/b"].unproven == "its pod is Pending after 0.05 s: ContainerCreating"
