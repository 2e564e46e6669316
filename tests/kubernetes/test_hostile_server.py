"""A server that answers without an end, too much, or page after page: what it costs a controller is bounded."""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import threading
import time
import urllib.parse

import pytest
from test_api import METRICS, answering

from node_device_plugin.cluster import api

NODES = api.Place("nodes")


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    monkeypatch.setattr(api, "_WHOLE", 1.0)
    monkeypatch.setattr(api, "_LARGEST", 1 << 20)
    monkeypatch.setattr(api, "_LARGEST_OF_POD", 1 << 20)


def client_of(address):
    return api.Api(api.Access(address, None, {}, ""))


def dripping(where, ended):
    """Sends a byte every tenth of a second: its status line, a header, or its content."""

    def answer(request):
        with contextlib.suppress(OSError):
            if where != "the status":
                request.wfile.write(b"HTTP/1.1 200 OK\r\n")
            if where == "the content":
                request.wfile.write(b"Content-Length: 1000\r\n\r\n")
            if where == "a chunk":
                request.wfile.write(b"Transfer-Encoding: chunked\r\n\r\n")
            while not ended.is_set():
                request.wfile.write(b"0" if where == "a chunk" else b"H")
                ended.wait(0.1)

    return answer


@pytest.mark.parametrize("where", ["the status", "a header", "the content", "a chunk"])
@pytest.mark.parametrize("place", [METRICS, NODES])
def test_a_server_that_sends_a_byte_now_and_then_is_not_waited_for(where, place):
    """Each byte is in time for the timeout of a socket."""
    ended = threading.Event()
    says = "the answer was not complete after 1 s"
    with answering(dripping(where, ended)) as address:
        try:
            kind = api.ApiError if place == METRICS else api.Unavailable
            with pytest.raises(kind, match=says):
                client_of(address).text(place)
        finally:
            ended.set()


def test_a_refusal_that_never_gets_to_its_reason_is_a_refusal_all_the_same(monkeypatch):
    monkeypatch.setattr(api, "_TIMEOUT", 0.1)
    ended = threading.Event()

    def answer(request):
        request.send_response(403)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        ended.wait(10)

    with answering(answer) as address:
        try:
            with pytest.raises(api.ApiError, match=r"answered 403 to GET of nodes: Forbidden$"):
                client_of(address).text(NODES)
        finally:
            ended.set()


def test_the_time_that_a_connection_takes_counts(monkeypatch):
    """As with several addresses of which none answers."""
    ended = threading.Event()
    create = socket.create_connection

    def slow(*arguments):
        ended.wait(1.5)
        return create(*arguments)

    monkeypatch.setattr(socket, "create_connection", slow)
    begun = time.monotonic()
    with answering(dripping("the content", ended)) as address:
        try:
            with pytest.raises(api.Unavailable, match="the answer was not complete after 1 s"):
                client_of(address).text(NODES)
        finally:
            ended.set()
    # The content would have taken 100 s.
    assert time.monotonic() - begun < 50


def test_all_pages_of_a_list_together_are_bounded(monkeypatch):
    monkeypatch.setattr(api, "_LARGEST_LIST", 3 << 20)

    def page(query):
        number = int(query.get("continue", 0))
        return 200, {
            "kind": "NodeList",
            "metadata": {"continue": str(number + 1)},
            "items": [{"x": "x" * (1000 << 10)}],
        }

    asked = []
    with answering(pages(page, asked)) as address, pytest.raises(api.ApiError, match="cannot read "):
        client_of(address).list(NODES)
    assert len(asked) == 4


def test_an_answer_that_nests_too_deep_is_refused():
    def answer(request):
        request.send_response(200)
        request.end_headers()
        request.wfile.write(b"[" * 200000)

    with answering(answer) as address, pytest.raises(api.ApiError, match="does not answer as an API server"):
        client_of(address).get(NODES)


@pytest.mark.parametrize("length", [None, 1 << 40])
def test_an_answer_without_an_end_is_not_kept(length):
    def answer(request):
        request.send_response(200)
        if length:
            request.send_header("Content-Length", str(length))
        request.end_headers()
        with contextlib.suppress(OSError):
            for _each in range(64):
                request.wfile.write(bytes(1 << 20))

    with answering(answer) as address, pytest.raises(api.ApiError) as caught:
        client_of(address).text(METRICS)
    assert str(caught.value) == f"cannot read {METRICS}: the answer has more than 1 MiB"


def pages(contents, asked):
    """A server that gives these pages, each with a token for the next one."""

    def answer(request):
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(request.path).query))
        asked.append(query)
        code, content = contents(query)
        request.send_response(code)
        request.end_headers()
        request.wfile.write(json.dumps(content).encode())

    return answer


def test_a_list_is_read_page_by_page():
    asked = []

    def page(query):
        number = int(query.get("continue", 0))
        metadata = {"continue": str(number + 1)} if number < 2 else {}
        return 200, {"kind": "NodeList", "metadata": metadata, "items": [{"number": number}]}

    with answering(pages(page, asked)) as address:
        assert client_of(address).list(NODES, labelSelector="a=b") == [{"number": number} for number in range(3)]
    assert [each.get("continue") for each in asked] == [None, "1", "2"]
    assert {(each["limit"], each["labelSelector"]) for each in asked} == {("500", "a=b")}


def test_a_list_whose_rest_is_gone_is_read_again_at_once():
    asked = []

    def page(query):
        if "continue" in query:
            return 410, {"kind": "Status", "message": "The provided continue parameter is too old"}
        return 200, {
            "kind": "NodeList",
            "metadata": {"continue": "x"} if "limit" in query else {},
            "items": [{"number": 1}],
        }

    with answering(pages(page, asked)) as address:
        assert client_of(address).list(NODES) == [{"number": 1}]
    assert [sorted(each) for each in asked] == [["limit"], ["continue", "limit"], []]


def test_a_list_without_an_end_ends(monkeypatch):
    monkeypatch.setattr(api, "_LIST", 0.3)
    numbers = itertools.count(1)

    def page(query):
        time.sleep(0.05)
        return 200, {"kind": "NodeList", "metadata": {"continue": str(next(numbers))}, "items": []}

    with (
        answering(pages(page, [])) as address,
        pytest.raises(api.ApiError, match=r"needs more than 0\.3 s to list nodes"),
    ):
        client_of(address).list(NODES)
