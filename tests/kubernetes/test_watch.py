"""Watching and replacing objects: what a real API server does, and what servers do that are none or that break."""

from __future__ import annotations

import contextlib
import json
import threading

import pytest
from test_api import answering, saying

from node_device_plugin.cluster import api, kubeconfig
from node_device_plugin.support import threads

NODES = api.Place("nodes")
#: Seconds that no test waits for.
LONG = 60


@pytest.fixture
def client(cluster):
    return api.Api(kubeconfig.read(cluster.kubeconfig()))


@pytest.fixture
def node(cluster):
    node = cluster.node({"cpu": "1"})
    yield node
    with contextlib.suppress(Exception):
        node.delete()


def client_of(address):
    return api.Api(api.Access(address, None, {}, ""))


def test_a_watch_begins_where_its_list_ended(cluster, client, node):
    listed = client.listed(NODES)
    assert node.name in [each["metadata"]["name"] for each in listed.objects]
    assert [each["metadata"]["name"] for each in client.list(NODES)] == [
        each["metadata"]["name"] for each in listed.objects
    ]
    client.merge(api.Place("nodes", node.name), {"metadata": {"labels": {"a": "b"}}})
    seen = []
    with contextlib.closing(client.watch(NODES, listed.version, LONG)) as events:
        for event in events:
            # The first event, of the label, was there before the watch.
            if not seen:
                other = cluster.node({})
                other.delete()
            if event.object["metadata"]["name"] in (node.name, other.name):
                seen.append((event.kind, event.object["metadata"]["name"]))
            if event.kind == "DELETED":
                break
    assert seen[:2] == [("MODIFIED", node.name), ("ADDED", other.name)]
    assert seen[-1] == ("DELETED", other.name)


def test_a_watch_goes_on_from_its_last_event(client, node):
    before = client.listed(NODES).version
    place = api.Place("nodes", node.name)
    for value in ("first", "second"):
        client.merge(place, {"metadata": {"labels": {"a": value}}})
    with contextlib.closing(client.watch(NODES, before, LONG)) as events:
        first = next(events).object["metadata"]
    with contextlib.closing(client.watch(NODES, first["resourceVersion"], LONG)) as events:
        assert (first["labels"]["a"], next(events).object["metadata"]["labels"]["a"]) == ("first", "second")


def test_a_watch_ends_by_itself(client):
    assert list(client.watch(NODES, client.listed(NODES).version, 1)) == []


def test_what_a_watch_asks_for():
    asked = []

    def answer(request):
        asked.append(request.path)
        saying(200, b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "9"}}}\n')(request)

    with answering(answer) as address:
        events = list(client_of(address).watch(NODES, "8", 30, fieldSelector="spec.nodeName=a"))
    assert events == [api.Event("BOOKMARK", {"metadata": {"resourceVersion": "9"}})]
    assert asked == [
        "/api/v1/nodes?watch=true&allowWatchBookmarks=true&timeoutSeconds=30"
        "&fieldSelector=spec.nodeName%3Da&resourceVersion=8"
    ]


GONE = {"kind": "Status", "code": 410, "message": "too old resource version: 1 (9)"}


@pytest.mark.parametrize("code", [200, 410])
def test_a_version_that_the_server_no_longer_has(code):
    """A server says so at once, or as an event."""
    content = GONE if code == 410 else json.dumps({"type": "ERROR", "object": GONE}).encode() + b"\n"
    with answering(saying(code, content)) as address, pytest.raises(api.Expired) as caught:
        list(client_of(address).watch(NODES, "1", LONG))
    assert str(caught.value) == f"the API server no longer has the changes of nodes: {GONE['message']}"


def test_the_server_ends_the_watch_with_another_error():
    event = {"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcdserver: leader changed"}}
    with (
        answering(saying(200, json.dumps(event).encode() + b"\n")) as address,
        pytest.raises(api.Unavailable) as caught,
    ):
        list(client_of(address).watch(NODES, "1", LONG))
    says = f"the API server {address} ended the watch of nodes: etcdserver: leader changed: watch again"
    assert str(caught.value) == says
    assert not isinstance(caught.value, api.Expired)


@pytest.mark.parametrize(
    "line", [b"<html>\n", b"[]\n", b'{"type": "ADDED"}\n', b'{"type": "ADDED", "object": 1}\n', b"[" * 200000 + b"\n"]
)
def test_a_line_that_is_no_event(line):
    with answering(saying(200, line)) as address, pytest.raises(api.ApiError) as caught:
        list(client_of(address).watch(NODES, "1", LONG))
    assert str(caught.value).startswith(f"{address}/api/v1/nodes does not answer as an API server: ")


def test_who_may_not_watch_reads_which_right_is_missing():
    message = 'nodes is forbidden: User "x" cannot watch resource "nodes" in API group "" at the cluster scope'
    answer = saying(403, {"kind": "Status", "message": message})
    with answering(answer) as address, pytest.raises(api.LacksRights) as caught:
        list(client_of(address).watch(NODES, "1", LONG))
    assert str(caught.value) == f"{message}: give this user watch on nodes in a ClusterRole"


EVENT = b'{"type": "ADDED", "object": {}}\n'


def test_a_connection_that_breaks_within_an_event():
    with answering(saying(200, EVENT + EVENT[:9])) as address:
        events = client_of(address).watch(NODES, "1", LONG)
        assert next(events) == api.Event("ADDED", {})
        with pytest.raises(api.Unavailable, match=r"does not answer: IncompleteRead\(9 bytes read\): retry when"):
            next(events)


def test_a_line_without_an_end_is_not_kept(monkeypatch):
    monkeypatch.setattr(api, "_LARGEST_EVENT", 1 << 20)

    def answer(request):
        saying(200, EVENT)(request)
        with contextlib.suppress(OSError):
            for _each in range(64):
                request.wfile.write(b"x" * (1 << 20))

    with answering(answer) as address:
        events = client_of(address).watch(NODES, "1", LONG)
        assert next(events) == api.Event("ADDED", {})
        with pytest.raises(api.ApiError) as caught:
            next(events)
    assert str(caught.value) == "cannot read nodes: a line of the answer has more than 1 MiB"


def test_an_event_of_the_largest_size_is_read(monkeypatch):
    monkeypatch.setattr(api, "_LARGEST_EVENT", len(EVENT))
    with answering(saying(200, EVENT)) as address:
        assert list(client_of(address).watch(NODES, "1", LONG)) == [api.Event("ADDED", {})]


@pytest.mark.parametrize("begins", [True, False])
def test_a_server_that_says_no_more_is_left(monkeypatch, begins):
    """Whether it never begins its answer, or does not end it when it should."""
    monkeypatch.setattr(api, "_TIMEOUT", 0.3)
    ended = threading.Event()
    waited = []

    def answer(request):
        if begins:
            saying(200, EVENT)(request)
        waited.append(ended.wait(LONG))

    with answering(answer) as address:
        try:
            events = client_of(address).watch(NODES, "1", 1)
            if begins:
                assert list(events) == [api.Event("ADDED", {})]
            else:
                with pytest.raises(api.Unavailable, match=r"the answer did not begin in 0\.3 s: retry when"):
                    next(events)
        finally:
            ended.set()
    assert waited == [True]


@pytest.mark.parametrize("read", [1, 3])
def test_who_leaves_a_watch_leaves_no_connection(read):
    """The server sends faster than anybody reads."""
    broken = threading.Event()

    def answer(request):
        saying(200, b"")(request)
        try:
            while True:
                request.wfile.write(EVENT * 1000)
        except OSError:
            broken.set()

    with answering(answer) as address:
        with contextlib.closing(client_of(address).watch(NODES, "1", LONG)) as events:
            assert [next(events) for _each in range(read)] == [api.Event("ADDED", {})] * read
        assert broken.wait(LONG)


def test_an_object_is_replaced_only_as_it_was_read(client, node):
    place = api.Place("nodes", node.name)
    old = client.get(place)
    wanted = {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}
    assert client.dry().replace(place, wanted)["metadata"]["labels"]["a"] == "b"
    assert "a" not in client.get(place)["metadata"].get("labels", {})
    assert client.replace(place, wanted)["metadata"]["labels"]["a"] == "b"
    assert client.get(place)["metadata"]["labels"]["a"] == "b"
    wanted["metadata"]["labels"] = {"a": "c"}
    with pytest.raises(api.Conflict, match=f"^the API server refused to replace node {node.name}: .*has been modified"):
        client.replace(place, wanted)
    assert client.get(place)["metadata"]["labels"]["a"] == "b"


def test_an_object_that_is_not_there_is_not_replaced(client):
    content = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "none"}}
    with pytest.raises(api.NotFound, match=r"^the cluster has no node none: "):
        client.replace(api.Place("nodes", "none"), content)


def test_who_may_not_replace_reads_which_right_is_missing(cluster, node):
    reader = api.Api(kubeconfig.read(cluster.kubeconfig({"token": "reader-token"})))
    place = api.Place("nodes", node.name)
    with pytest.raises(api.LacksRights, match=r"give this user update on nodes in a ClusterRole$"):
        reader.replace(place, reader.get(place))


def test_a_process_that_may_start_no_thread_tries_later(monkeypatch):
    """At TasksMax= of a service."""

    def refuse(_thread):
        raise RuntimeError("can't start new thread")

    with answering(saying(200, EVENT)) as address:
        client = client_of(address)
        monkeypatch.setattr(threads, "start", refuse)
        for request in (lambda: client.get(NODES), lambda: next(client.watch(NODES, "1", LONG))):
            with pytest.raises(api.Unavailable, match=r"does not answer: can't start new thread: retry when"):
                request()
        monkeypatch.undo()
