"""The action device_classes: for which nodes of which clusters it keeps classes, and when an uninstall stops."""

from __future__ import annotations

import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import LacksRights
from ansible_collections.nodedevices.kubernetes.plugins.action import device_classes as action_module
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import device_classes, duplicate_nodes
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.device_classes import Use

CAMERA = {"name": "example.com/camera", "api": "dra"}
PLAIN = {"name": "example.com/plain"}
DRIVER = "nodedevices.kubernetes"


@pytest.fixture
def run(monkeypatch):
    """run(state, hosts, ...): the result for the first host, and for each kubeconfig what its nodes use."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    asked = {}
    monkeypatch.setattr(action_module.Api, "of", lambda path, dry_run=False: path)

    def converge(path, uses):
        asked[path] = set(uses)
        return []

    monkeypatch.setattr(device_classes, "converge", converge)

    def run_action(state, hosts, check=False, **arguments):
        asked.clear()
        host = next(iter(hosts))
        action = object.__new__(action_module.ActionModule)
        play = types.SimpleNamespace(_uuid="play")
        action._task = types.SimpleNamespace(
            args={"state": state, **arguments}, check_mode=check, get_play=lambda: play
        )
        action._templar = types.SimpleNamespace(template=lambda value: value)
        variables = {**hosts[host], "inventory_hostname": host, "ansible_play_hosts": list(hosts), "hostvars": hosts}
        return action.run(None, variables), dict(asked)

    return run_action


def host(*resources, kubeconfig="/k", node="", **variables):
    known = {"declaration": {"resources": list(resources), "dra": {"name": DRIVER, "node": node}}}
    return {"node_devices_kubeconfig": kubeconfig, "device_plugin_node": known, **variables}


def test_all_hosts_of_the_play_count(run, monkeypatch):
    monkeypatch.setattr(duplicate_nodes, "identity", lambda path: path.rstrip("2"))
    hosts = {
        "a": host(CAMERA, PLAIN, node="node-a"),
        "b": host(PLAIN, node="b", kubeconfig="/k2"),
        "c": {"node_devices_kubeconfig": "/k", "node_devices_node_name": "node-c"},
        "d": host(CAMERA, node="d", kubeconfig="/other"),
        "e": host(PLAIN, node="e", kubeconfig=None),
        "pool": {"node_devices_kubeconfig": "/k", "node_devices_profile": True},
    }
    _, asked = run("present", hosts)
    nothing = frozenset()
    assert asked == {
        "/k": {
            Use("node-a", frozenset(["example.com/camera"]), DRIVER),
            Use("b", nothing, DRIVER),
            Use("node-c", nothing, ""),
        },
        "/other": {Use("d", frozenset(["example.com/camera"]), DRIVER)},
    }


def test_a_class_needs_a_cluster(run):
    result, asked = run("present", {"a": host(CAMERA, node="a", kubeconfig=None)})
    assert (result["failed"], asked) == (True, {})
    assert "a: node_devices_kubeconfig: not set, but the DeviceClass of example.com/camera" in result["msg"]


def test_an_uninstall_uses_nothing(run):
    _, asked = run("absent", {"a": host(CAMERA, node="a")})
    assert asked == {"/k": {Use("a", frozenset(), "")}}


@pytest.fixture
def claims(monkeypatch):
    """The claims at each look, of which the last ones stay."""
    looks = [[]]

    def found(_api, driver, node):
        assert (driver, node) == (claims.driver, "a")
        each = looks.pop(0) if len(looks) > 1 else looks[0]
        if isinstance(each, Exception):
            raise each
        return iter(each)

    claims = types.SimpleNamespace(looks=looks, driver=DRIVER)
    monkeypatch.setattr(device_classes, "claims", found)
    monkeypatch.setattr(action_module, "_PAUSE", 0)
    monkeypatch.setattr(preflight.Preflight, "node_name", lambda self, given: "a")
    monkeypatch.setattr(preflight.Preflight, "known", None)
    return claims


@pytest.mark.parametrize("check", [False, True])
def test_claims_stop_an_uninstall(run, claims, monkeypatch, check):
    monkeypatch.setattr(action_module, "_GRACE", 0.01)
    claims.looks[:] = [["default/one (pod viewer)", "default/two"]]
    result, _ = run("unclaimed", {"a": host()}, check=check)
    assert result["failed"]
    assert result["msg"] == (
        "a: the claims default/one (pod viewer), default/two have devices of this node, and their pods cannot end "
        "without the plugin: end these pods first (kubectl drain)"
    )


def test_a_claim_may_take_some_seconds_to_become_free(run, claims):
    claims.looks[:] = [["default/one"], ["default/one"], []]
    result, _ = run("unclaimed", {"a": host()})
    assert not result.get("failed")
    assert claims.looks == [[]]


def test_the_drivers_name_is_the_declared_one(run, claims):
    claims.driver = "d.example.com"
    result, _ = run("unclaimed", {"a": host(node_devices_settings={"dra": {"driver": "d.example.com"}})})
    assert not result.get("failed")


@pytest.mark.parametrize(("drivers", "fails"), [([], False), ([DRIVER], True)])
def test_a_user_without_rights_on_claims(run, claims, monkeypatch, drivers, fails):
    claims.looks[:] = [LacksRights("may not list resourceclaims")]
    monkeypatch.setattr(preflight.Preflight, "known", {"device_plugins": {"drivers": drivers}})
    result, _ = run("unclaimed", {"a": host()})
    assert bool(result.get("failed")) is fails


def test_without_a_cluster_nothing_is_asked(run, claims):
    claims.looks[:] = [AssertionError("asked")]
    for variables in (host(kubeconfig=None), host(node_devices_profile=True)):
        assert not run("unclaimed", {"a": variables})[0].get("failed")


@pytest.mark.parametrize(("now", "fails"), [(True, True), (False, False)])
def test_without_a_cluster_the_records_of_the_node_stop_an_uninstall(run, claims, monkeypatch, now, fails):
    monkeypatch.setattr(preflight.Preflight, "known", {"claims_prepared": True})
    monkeypatch.setattr(preflight.Preflight, "on_node", lambda self, module, arguments: {"claims_prepared": now})
    assert bool(run("unclaimed", {"a": host(kubeconfig=None)})[0].get("failed")) is fails
