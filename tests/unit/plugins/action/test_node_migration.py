"""The action node_migration: what it plans, what it refuses, and until when it waits."""

from __future__ import annotations

import json
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugins.action import node_migration
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import framed
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import migration, waiting
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.migration import Seen
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.preflight import Preflight
from fleet_nodes import device, serving, status

CAMERA, POOL = "example.com/camera", "w1/camera.example.com"
DEVICES = [{"id": "a", "nodes": [{"path": "/dev/null"}]}]


@pytest.fixture
def run(monkeypatch):
    """run(state, what the cluster shows at each look, ...): the result. The last look repeats itself."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(Preflight, "node_name", lambda _self, _given: "w1")
    monkeypatch.setattr(waiting.time, "sleep", lambda _seconds: None)
    told = status(serving(CAMERA, device("a"), device("b", state="unhealthy", reason="no")))
    monkeypatch.setattr(framed, "run", lambda _action, _line, _given=None: framed.Said(0, json.dumps(told), ""))

    def run_action(state, *seen, kubeconfig="/k", api="device_plugin", arguments=None, cluster=None, **variables):
        action = object.__new__(node_migration.ActionModule)
        action._task = types.SimpleNamespace(
            args={"state": state, "command": "/c", **(arguments or {})}, check_mode=False, get_play=lambda: None
        )
        action._templar = types.SimpleNamespace(template=lambda value: value)
        monkeypatch.setattr(node_migration.play, "Renewal", lambda *_arguments: lambda: None)
        monkeypatch.setattr(node_migration.Api, "of", lambda _path, dry_run: cluster or dry_run)
        looks = [*seen]
        monkeypatch.setattr(migration, "look", lambda *_arguments: looks.pop(0) if len(looks) > 1 else looks[0])
        declared = {"configuration": {"resources": [{"name": CAMERA, "api": api, "devices": DEVICES}]}}
        given = {"node_devices_kubeconfig": kubeconfig, "inventory_hostname": "worker1", **variables}
        action._task.args["declaration"] = declared
        result = action.run(None, given)
        return result, len(looks)

    return run_action


BY_PLUGIN, BY_DRA = Seen({CAMERA: "1"}, {CAMERA: "1"}, {}), Seen({CAMERA: "1"}, {CAMERA: "0"}, {POOL: 1})


def test_what_moves_is_told(run, monkeypatch):
    asked = []
    monkeypatch.setattr(migration, "require_limits", lambda api, *_rest: asked.append(api))
    result, _looks = run("planned", BY_PLUGIN, api="dra")
    told = {"moves": True, "has_slices": False, "usable": [CAMERA], "text": f"worker1: moves {CAMERA}"}
    assert result == {"changed": False, "check_mode": False, **told}
    # Only dry runs.
    assert asked == [True]
    result, _looks = run("planned", BY_PLUGIN, api="dra", arguments={"pods_have_claims": True})
    assert (result["moves"], asked) == (True, [True])
    result, _looks = run("planned", BY_DRA, api="dra")
    assert (result["moves"], result["text"]) == (False, "worker1: serves its resources as declared")
    # A run that failed after the move left it so.
    result, _looks = run("planned", BY_DRA._replace(is_ours=True), api="dra")
    assert result["moves"] is True
    assert result["text"].endswith("as declared, and an earlier run left the node cordoned")


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"kubeconfig": None}, "node_devices_kubeconfig: not set"),
        ({"node_devices_profile": True}, "a profile has no node to drain"),
        ({"node_devices_drain": True}, "node_devices_drain: do not set it"),
    ],
)
def test_what_no_migration_can_do_is_refused(run, variables, words):
    result, _looks = run("planned", BY_PLUGIN, **variables)
    assert result["failed"] is True
    assert words in result["msg"]


def test_the_wait_ends_when_the_cluster_shows_the_healthy_devices(run):
    result, looks = run("served", BY_DRA, BY_PLUGIN._replace(allocatable={CAMERA: "2"}), BY_PLUGIN)
    assert (result["changed"], "failed" in result, looks) == (False, False, 1)


def test_a_wait_in_vain_names_what_is_missing(run):
    result, _looks = run("served", BY_DRA, arguments={"timeout": 0})
    assert result["failed"] is True
    assert result["msg"].splitlines() == [
        f"worker1: {CAMERA}: ResourceSlices of the node still have its devices",
        f"worker1: {CAMERA}: status.allocatable of the node shows 0 instead of 1",
    ]


@pytest.mark.parametrize(
    ("plugin", "word"),
    [(None, "does not serve it yet"), (serving(CAMERA, device("a", state="unhealthy", reason="no")), "no device is")],
)
def test_a_plugin_that_offers_nothing_is_no_end(run, monkeypatch, plugin, word):
    """Another cause than the other API may have taken the devices away."""
    told = {**status(), "plugin": None} if plugin is None else status(plugin)
    monkeypatch.setattr(framed, "run", lambda _action, _line, _given=None: framed.Said(0, json.dumps(told), ""))
    gone = BY_PLUGIN._replace(allocatable={CAMERA: "0"})
    result, _looks = run("served", gone, arguments={"timeout": 0, "usable": [CAMERA]})
    assert result["failed"] is True
    assert word in result["msg"]


def test_a_node_that_has_not_joined_does_not_move(run):
    cluster = types.SimpleNamespace(get=lambda _place: None)
    result, _looks = run("planned", BY_PLUGIN, api="dra", node_devices_api_only=True, cluster=cluster)
    assert (result["moves"], result["text"]) == (False, "worker1: the node has not joined")


def test_a_node_that_only_the_api_reaches_is_not_asked(run, monkeypatch):
    monkeypatch.setattr(framed, "run", None)
    several = BY_PLUGIN._replace(allocatable={CAMERA: "2"})
    result, _looks = run("served", several, arguments={"timeout": 0}, node_devices_api_only=True)
    assert "failed" not in result
