"""What others have in the cluster stays as it is, and what they serve is not taken over; by all that is asked of it."""

from __future__ import annotations

import json
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api, NotFound, Place
from ansible_collections.nodedevices.kubernetes.plugins.action import daemonset
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import namespace, objects
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.daemonset import DaemonSet
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes.objects import DeploymentError

DEPLOYMENT = manifests.parse_deployment({"image": "x", "namespace": "ours"})
NAME = DEPLOYMENT.name
CONFIG_MAP, DAEMON_SET = Place("configmaps", NAME, "ours"), Place("daemonsets", NAME, "ours", "apps/v1")
#: Labels of others: none, another manager's, and one of ours with another value.
THEIRS = [None, {"app.kubernetes.io/managed-by": "Helm"}, {"app": NAME}]


@pytest.fixture
def api(monkeypatch):
    """An API server with ``there``: place to object. ``changes``: what else than GET it was asked for."""
    made = object.__new__(Api)
    made.there, made.changes, made.dry_run = {}, [], False

    def answer(method, place, query, content, *_others):
        if method != "GET":
            made.changes.append((method, str(place), content))
        elif place not in made.there:
            raise NotFound(str(place))
        return json.dumps({"kind": "x", **made.there.get(place, {"metadata": {}})}).encode()

    monkeypatch.setattr(made, "_ask", answer)
    monkeypatch.setattr(made, "kinds_of_namespaces", lambda but: [])
    return made


def labelled(labels, **content):
    return {"metadata": {"name": NAME, "uid": "7", **({"labels": labels} if labels else {})}, **content}


@pytest.mark.parametrize("labels", THEIRS)
def test_nothing_of_others_is_deleted_or_written(api, labels):
    namespace_place = Place("namespaces", "ours")
    for place in (CONFIG_MAP, DAEMON_SET, namespace_place):
        api.there[place] = labelled(labels, data={"theirs": "text"})
    for place in (CONFIG_MAP, DAEMON_SET):
        assert objects.delete(api, place).changed is False
        with pytest.raises(DeploymentError, match="belongs to others, because it has no label"):
            objects.apply(api, place, {"metadata": {}})
    assert namespace.Namespace(api, DEPLOYMENT, ()).remove() == []
    cluster = DaemonSet(api, DEPLOYMENT)
    assert cluster.texts() == {}
    assert not any(change.changed for change in cluster.dismantle([]))
    assert api.changes == []


@pytest.mark.parametrize("labels", THEIRS)
@pytest.mark.parametrize("place", [CONFIG_MAP, DAEMON_SET])
def test_a_node_is_not_configured_beside_what_others_have_under_our_name(api, place, labels):
    api.there = {Place("nodes", "worker1"): labelled({}), place: labelled(labels)}
    with pytest.raises(DeploymentError, match=f"^{place} belongs to others"):
        DaemonSet(api, DEPLOYMENT).configure({"worker1": "{}"})
    assert api.changes == []


def test_the_last_configmap_is_shown_without_keys_that_a_check_leaves_in_it(api):
    ours = labelled(dict(manifests.MANAGED_BY))
    shown = []
    for data in ({"data": {"worker1": "{}"}}, {}):
        api.there = {CONFIG_MAP: {**ours, **data}}
        shown.append(DaemonSet(api, DEPLOYMENT).dismantle(["worker1"]))
    assert shown[0] == shown[1]
    assert [change.what for change in shown[0] if change.changed] == [str(CONFIG_MAP)]


def test_what_is_ours_is_deleted_as_the_object_that_was_seen(api):
    api.there[CONFIG_MAP] = labelled(dict(manifests.MANAGED_BY))
    assert objects.delete(api, CONFIG_MAP).changed is True
    ((method, place, content),) = api.changes
    assert (method, place, content["preconditions"]) == ("DELETE", str(CONFIG_MAP), {"uid": "7"})


@pytest.mark.parametrize(
    ("api_only", "given", "refused"),
    [
        (True, {}, True),
        (True, {"takeover": False}, True),
        (True, {"takeover": True}, False),
        (False, {}, False),
    ],
)
def test_where_only_the_api_reaches_a_node_another_plugin_is_taken_over_when_that_is_said(
    monkeypatch, api_only, given, refused
):
    def refuse(cluster, node, names, places):
        raise DeploymentError(f"another device plugin serves {', '.join(names)}")

    configured = []
    cluster = types.SimpleNamespace(
        api=types.SimpleNamespace(node=lambda _name: {}),
        deployment=DEPLOYMENT,
        data=dict,
        configure=lambda texts: configured.extend(texts) or [],
    )
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})
    monkeypatch.setattr(daemonset.ActionModule, "_daemon_set", lambda self, path, deployment: cluster)
    monkeypatch.setattr(daemonset.other_daemonsets, "before", lambda *_: [])
    monkeypatch.setattr(daemonset.deployed, "without_slot", lambda *_: "")
    monkeypatch.setattr(daemonset.other_daemonsets, "refuse_foreign", refuse)
    action = object.__new__(daemonset.ActionModule)
    resource = {"name": "example.com/dev", "devices": [{"id": "d0"}], "env": {"DEV": "x"}}
    arguments = {
        "state": "configured",
        "kubeconfig": "/none",
        "deployment": {"image": "x"},
        "declaration": {"configuration": {"resources": [resource]}},
        **given,
    }
    action._task = types.SimpleNamespace(args=arguments, check_mode=False)
    action._templar = types.SimpleNamespace(template=lambda value: value)
    result = action.run(None, {"inventory_hostname": "worker1", "node_devices_api_only": api_only})
    assert result.get("failed", False) is refused
    assert result.get("msg") == ("worker1: another device plugin serves example.com/dev" if refused else None)
    assert configured == ["worker1"] * (not refused)
