"""The action device_classes: for which nodes of which clusters it keeps classes, and when an uninstall stops."""

from __future__ import annotations

import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import LacksRights
from ansible_collections.nodedevices.kubernetes.plugins.action import device_classes as action_module
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils import preflight
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import (
    claims,
    device_classes,
    duplicate_nodes,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.device_classes import Use
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import Change

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
    monkeypatch.setattr(device_classes, "allocated", lambda _path, _node: frozenset())

    def run_action(state, hosts, check=False, **arguments):
        asked.clear()
        host = next(iter(hosts))
        action = object.__new__(action_module.ActionModule)
        play = types.SimpleNamespace(_uuid="play")
        action._task = types.SimpleNamespace(
            args={"state": state, **arguments}, check_mode=check, get_play=lambda: play
        )
        # Stands for templates.
        action._templar = types.SimpleNamespace(
            template=lambda value: value.strip("{ }") if isinstance(value, str) else value
        )
        variables = {**hosts[host], "inventory_hostname": host, "ansible_play_batch": list(hosts), "hostvars": hosts}
        return action.run(None, variables), dict(asked)

    return run_action


def host(*resources, kubeconfig="/k", node="", **variables):
    known = {"declaration": {"resources": list(resources), "dra": {"name": DRIVER, "node": node}}}
    return {"node_devices_kubeconfig": kubeconfig, "device_plugin_node": known, **variables}


def test_all_hosts_of_the_batch_count(run, monkeypatch):
    monkeypatch.setattr(duplicate_nodes, "identity", lambda path: path.rstrip("2"))
    hosts = {
        "a": host(CAMERA, PLAIN, node="node-a"),
        "b": host(PLAIN, node="b", kubeconfig="/k2"),
        "c": host(kubeconfig="/k", node_devices_node_name="node-c"),
        "d": host(CAMERA, node="d", kubeconfig="/other"),
        "e": host(PLAIN, node="e", kubeconfig=None),
        "skips": {"node_devices_kubeconfig": "/k", "node_devices_profile": True},
        "pool": host(CAMERA, node="pool", node_devices_profile=True, device_plugin_deployment={"name": "gpu"}),
    }
    _, asked = run("present", hosts)
    nothing = frozenset()
    assert asked == {
        "/k": {
            Use("node-a", frozenset(["example.com/camera"]), DRIVER),
            Use("b", nothing, DRIVER),
            Use("node-c", nothing, DRIVER),
            Use("node-devices/gpu", frozenset(["example.com/camera"]), DRIVER),
        },
        "/other": {Use("d", frozenset(["example.com/camera"]), DRIVER)},
    }


@pytest.mark.parametrize("variables", [{}, {"device_plugin_node": {"changed": False, "skipped": True}}])
def test_a_host_that_skips_the_role_keeps_its_classes(run, variables):
    hosts = {"a": host(CAMERA, node="a"), "b": {"node_devices_kubeconfig": "/k", **variables}}
    _, asked = run("present", hosts)
    assert asked == {"/k": {Use("a", frozenset(["example.com/camera"]), DRIVER)}}
    _, asked = run("absent", hosts)
    assert asked == {"/k": {Use("a", frozenset(), ""), Use("b", frozenset(), "")}}


def test_a_class_needs_a_cluster(run):
    result, asked = run("present", {"a": host(CAMERA, node="a", kubeconfig=None)})
    assert (result["failed"], asked) == (True, {})
    assert "a: node_devices_kubeconfig: not set, but the DeviceClass of example.com/camera" in result["msg"]


def test_resources_that_the_server_lets_pods_get_only_by_claims_are_a_warning(run, monkeypatch):
    def converge(_path, _uses):
        after = {"extendedResourceName": ""}
        return [Change(f"deviceclass {name}.example.com", None, after) for name in ("camera", "of-another-play")]

    monkeypatch.setattr(device_classes, "converge", converge)
    result, _ = run("present", {"a": host(CAMERA, node="a")})
    assert not result.get("failed")
    assert result["warnings"] == [f"a: {device_classes.only_by_claims(['example.com/camera'])}"]


def test_an_uninstall_uses_nothing(run):
    _, asked = run("absent", {"a": host(CAMERA, node="a")})
    assert asked == {"/k": {Use("a", frozenset(), "")}}


def claim(name):
    return {"name": name, "driver": DRIVER, "directory": "/run/cdi"}


@pytest.fixture
def node(monkeypatch):
    """The node's claims at each look, of which the last ones stay. known: in the facts of the play's preflight."""
    node = types.SimpleNamespace(looks=[[]], asked=[])

    def on_node(_self, module, arguments):
        node.asked.append((module, arguments))
        names = node.looks.pop(0) if len(node.looks) > 1 else node.looks[0]
        return names if isinstance(names, dict) else {"runtime": {}, "claims_prepared": [claim(each) for each in names]}

    def know(names):
        monkeypatch.setattr(preflight.Preflight, "known", {"claims_prepared": [claim(each) for each in names]})

    node.know = know
    monkeypatch.setattr(action_module, "_PAUSE", 0)
    monkeypatch.setattr(preflight.Preflight, "on_node", on_node)
    monkeypatch.setattr(preflight.Preflight, "known", None)
    return node


@pytest.mark.parametrize("kubeconfig", [None, "/k"])
@pytest.mark.parametrize("check", [False, True])
def test_claims_stop_an_uninstall(run, node, monkeypatch, check, kubeconfig):
    monkeypatch.setattr(action_module, "_GRACE", 0.01)
    node.know(["default/one"])
    node.looks[:] = [["default/two", "default/one"]]
    result, _ = run("unclaimed", {"a": host(kubeconfig=kubeconfig)}, check=check)
    assert result["failed"]
    assert result["msg"] == (
        "a: the claims default/one, default/two have devices of this node, and their pods cannot end without the "
        "plugin: end these pods first (kubectl drain)"
    )


def test_a_claim_may_take_some_seconds_to_become_free(run, node):
    node.looks[:] = [["default/one"], ["default/one"], []]
    result, _ = run("unclaimed", {"a": host()})
    assert not result.get("failed")
    assert node.looks == [[]]


def test_the_records_are_in_the_declared_directory(run, node):
    run("unclaimed", {"a": host(node_devices_settings={"dynamic_cdi_dir": "/srv/cdi"})})
    assert node.asked == [("node_preflight", {"cdi_dir": "/srv/cdi"})]


def test_a_node_that_does_not_tell_keeps_its_plugin(run, node):
    node.looks[:] = [{"failed": True, "msg": "boom"}]
    result, _ = run("unclaimed", {"a": host()})
    assert result["failed"]
    assert "boom" in result["msg"]


def test_a_node_without_claims_costs_nothing(run, node):
    node.know([])
    assert not run("unclaimed", {"a": host()})[0].get("failed")
    for kind in ("node_devices_profile", "node_devices_api_only"):
        assert not run("unclaimed", {"a": host(kubeconfig=None, **{kind: True})})[0].get("failed")
    assert node.asked == []


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"node_devices_profile": True}, ""),
        ({"node_devices_api_only": True}, "a"),
        ({"node_devices_api_only": True, "node_devices_node_name": "node-a"}, "node-a"),
    ],
)
def test_if_only_the_api_reaches_nodes_the_cluster_tells_their_claims(run, node, monkeypatch, variables, name):
    asked = []
    monkeypatch.setattr(action_module, "_GRACE", 0.01)
    monkeypatch.setattr(
        claims, "held", lambda cluster, node: asked.append((cluster.deployment.name, node)) or ["default/one"]
    )
    given = host(device_plugin_deployment={"name": "gpu"}, **variables)
    result, _ = run("unclaimed", {"a": given})
    assert result["msg"].startswith("a: the claims default/one have devices of this node")
    assert set(asked) == {("gpu", name)}
    assert node.asked == []


@pytest.mark.parametrize("check", [False, True])
def test_claims_whose_pods_have_not_started_stop_an_uninstall(run, node, monkeypatch, check):
    monkeypatch.setattr(action_module, "_GRACE", 0.01)
    asked = []

    def allocated(path, name):
        asked.append((path, name))
        return frozenset(["default/one", "default/new", "other/new"])

    monkeypatch.setattr(device_classes, "allocated", allocated)
    node.looks[:] = [["default/one"]]
    variables = host(kubeconfig="{{ /k }}", node_devices_node_name="{{ node-a }}")
    result, _ = run("unclaimed", {"a": variables}, check=check)
    assert result["failed"]
    assert result["msg"] == (
        "a: the claims default/one have devices of this node, and their pods cannot end without the plugin: end these "
        "pods first (kubectl drain); devices of this node are allocated to the claims default/new, other/new, and "
        "their pods cannot start without the plugin: delete these pods first"
    )
    assert set(asked) == {("/k", "node-a")}


def test_a_claim_that_is_no_longer_allocated_stops_nothing(run, node, monkeypatch):
    answers = [frozenset(["default/new"]), frozenset(["default/new"]), frozenset()]
    monkeypatch.setattr(device_classes, "allocated", lambda _path, _node: answers.pop(0))
    assert not run("unclaimed", {"a": host()})[0].get("failed")
    assert answers == []


def test_a_user_who_may_not_list_claims_is_told(run, node, monkeypatch):
    def allocated(_path, _node):
        raise LacksRights("no right to list resourceclaims")

    monkeypatch.setattr(device_classes, "allocated", allocated)
    result, _ = run("unclaimed", {"a": host()})
    assert not result.get("failed")
    assert result["warnings"] == [
        "a: nothing tells whether pods that have not started yet have claims with devices of this node: no right to "
        "list resourceclaims"
    ]
    monkeypatch.setattr(action_module, "_GRACE", 0.01)
    node.looks[:] = [["default/one"]]
    result, _ = run("unclaimed", {"a": host()})
    assert result["msg"].startswith("a: the claims default/one have devices of this node")
