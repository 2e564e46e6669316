"""Which kinds an API server says that namespaces have, and what an uninstall makes of one that does not say it."""

from __future__ import annotations

import json

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import (
    Api,
    NotFound,
    Place,
    Unavailable,
)
from ansible_collections.nodedevices.kubernetes.plugins.plugin_utils.kubernetes import namespace

VERBS = {"namespaced": True, "verbs": ["get", "list"]}
OURS = {"metadata": {"name": "ours", "labels": {"app.kubernetes.io/managed-by": "nodedevices"}, "uid": "1"}}


def group(name, *versions):
    named = [{"groupVersion": f"{name}/{version}"} for version in versions]
    return {"name": name, "preferredVersion": named[0], "versions": named}


@pytest.fixture
def api(monkeypatch):
    """An API server with a group whose second version has a kind of its own, and one whose server is away."""
    pages = {
        "/apis": {"groups": [group("routes.example", "v1", "v1alpha2"), group("metrics.k8s.io", "v1beta1")]},
        "/api/v1": {"resources": [{"name": "configmaps", **VERBS}, {"name": "pods/log", **VERBS}]},
        "/apis/routes.example/v1": {"resources": [{"name": "http", **VERBS}]},
        "/apis/routes.example/v1alpha2": {"resources": [{"name": "http", **VERBS}, {"name": "tcp", **VERBS}]},
    }
    made = object.__new__(Api)

    def answer(method, place, query, *_others):
        if place.kinds.startswith("/") and place.kinds not in pages:
            raise Unavailable("503")
        if place.kinds in made.removed:
            raise NotFound("404")
        found = OURS if place.kinds == "namespaces" else pages.get(place.kinds)
        return json.dumps({"kind": "x", **(found or {"items": made.items.get(str(place), [])})}).encode()

    made.items, made.pages, made.removed, made.dry_run = {}, pages, set(), False
    monkeypatch.setattr(made, "_ask", answer)
    return made


def remove(api):
    deployment = namespace.manifests.parse_deployment({"image": "x", "namespace": "ours"})
    found = namespace.Namespace(api, deployment, ())
    return found.remove(), found.kept


def test_a_kind_of_another_version_than_the_preferred_one_is_found(api):
    assert [(each.kinds, each.group) for each in api.kinds_of_namespaces(but=["metrics.k8s.io"])] == [
        ("configmaps", ""),
        ("http", "routes.example/v1"),
        ("tcp", "routes.example/v1alpha2"),
    ]


def test_an_object_of_such_a_kind_keeps_the_namespace(api):
    place = Place("tcp", namespace="ours", group="routes.example/v1alpha2")
    api.items[str(place)] = [{"metadata": {"name": "theirs"}}]
    assert remove(api) == ([], "it still contains tcp theirs")


def test_events_keep_no_namespace_and_hide_no_other_kind(api, monkeypatch):
    monkeypatch.setattr(namespace.objects, "delete", lambda _api, place: place.name)
    api.pages["/api/v1"]["resources"].insert(0, {"name": "events", **VERBS})
    api.items[str(Place("events", namespace="ours"))] = [{"metadata": {"name": "started"}}]
    assert remove(api) == (["ours"], "")
    api.items[str(Place("configmaps", namespace="ours"))] = [{"metadata": {"name": "theirs"}}]
    assert remove(api) == ([], "it still contains configmaps theirs")


def test_a_kind_that_somebody_removes_meanwhile_hides_no_other_kind(api, monkeypatch):
    monkeypatch.setattr(namespace.objects, "delete", lambda _api, place: place.name)
    api.removed.add("http")
    place = Place("tcp", namespace="ours", group="routes.example/v1alpha2")
    api.items[str(place)] = [{"metadata": {"name": "theirs"}}]
    assert remove(api) == ([], "it still contains tcp theirs")
    api.items.clear()
    assert remove(api) == (["ours"], "")


def test_a_server_of_measurements_that_is_away_keeps_nothing(api, monkeypatch):
    monkeypatch.setattr(namespace.objects, "delete", lambda _api, place: place.name)
    assert remove(api) == (["ours"], "")


def test_a_server_of_objects_that_is_away_keeps_it(api):
    api.pages["/apis"]["groups"].append(group("away.example", "v1"))
    assert remove(api) == ([], "it cannot be checked for objects of others: 503")


@pytest.mark.parametrize(("name", "keeps"), [("node-device-plugin", False), ("theirs", True)])
def test_the_pods_of_our_daemonsets_end_after_them(api, monkeypatch, name, keeps):
    """Also those of a second DaemonSet, which the same task has deleted."""
    monkeypatch.setattr(namespace.objects, "delete", lambda _api, place: place.name)
    api.pages["/api/v1"]["resources"].append({"name": "pods", **VERBS})
    owner = {"kind": "DaemonSet", "name": "second"}
    metadata = {"name": "second-1", "labels": {"app.kubernetes.io/name": name}, "ownerReferences": [owner]}
    api.items[str(Place("pods", namespace="ours"))] = [{"metadata": metadata}]
    assert remove(api) == (([], "it still contains pods second-1") if keeps else (["ours"], ""))
    # A pod that somebody has made by hand has no such owner.
    del metadata["ownerReferences"]
    assert remove(api) == ([], "it still contains pods second-1")


def test_a_kind_named_as_one_of_kubernetes_counts(api):
    api.pages["/apis/routes.example/v1"]["resources"].append({"name": "events", **VERBS})
    place = Place("events", namespace="ours", group="routes.example/v1")
    api.items[str(place)] = [{"metadata": {"name": "theirs"}}]
    assert remove(api)[1] == "it still contains events theirs"
