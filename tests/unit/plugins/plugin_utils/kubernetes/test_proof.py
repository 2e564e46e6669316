"""What killed plays left of their proofs."""

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
