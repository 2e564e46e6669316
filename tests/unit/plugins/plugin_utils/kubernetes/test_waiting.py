"""Waiting for a state of the cluster: when it looks, how long it sleeps, and what ends it."""

from __future__ import annotations

import types

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import ApiError, Unavailable
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import waiting

AWAY = Unavailable("it does not answer")


@pytest.fixture
def sleeps(monkeypatch):
    """The sleeps so far; nothing else takes time."""
    made = []
    clock = types.SimpleNamespace(monotonic=lambda: sum(made), sleep=made.append)
    monkeypatch.setattr(waiting, "time", clock)
    return made


def wait(*answers, seconds=5.0):
    """Wait for the first answer that is not None. Returns it, and whether the time was over at each look."""
    left, late = list(answers), []

    def look(is_late):
        late.append(is_late)
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return waiting.until(look, seconds, 2.0), late


def test_what_is_there_is_not_waited_for(sleeps):
    for found in ("x", False, 0, []):
        assert wait(found, seconds=1) == (found, [False])
        assert wait(found, seconds=0) == (found, [True])
    assert sleeps == []


def test_an_api_server_that_is_away_is_another_look(sleeps):
    assert wait(None, AWAY, AWAY, "x") == ("x", [False, False, False, True])
    # The last look is at the end of the time, and not after it.
    assert sleeps == [2.0, 2.0, 1.0]


def test_an_api_server_that_stays_away_and_any_other_error_end_it(sleeps):
    with pytest.raises(Unavailable):
        wait(AWAY, AWAY, AWAY, AWAY)
    with pytest.raises(ApiError, match="no right"):
        wait(ApiError("no right"), "x")


def test_the_lock_is_renewed_before_each_look(sleeps):
    done = []
    waiting.until(lambda is_late: done.append("look") or is_late or None, 2.0, 2.0, lambda: done.append("renew"))
    assert done == ["renew", "look"] * 2
