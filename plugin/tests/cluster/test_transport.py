"""Connections to an API server that later requests use again."""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import threading
import time
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from node_device_plugin.cluster.api import Access, Api, ApiError, Place, Unavailable

PLACE = Place("configmaps", "one", "default")


class Server(http.server.ThreadingHTTPServer):
    """Keeps connections open, as an API server does. requests: each with the number of its connection."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.connections: list[socket.socket] = []
        self.requests: list[tuple[str, int]] = []
        #: Holds each request until that many have come.
        self.together = threading.Barrier(1)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)

    def end_connections(self) -> None:
        for each in self.connections:
            each.shutdown(socket.SHUT_RDWR)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, self.server.connections.index(self.connection)))
        self.server.together.wait(20)
        is_there = not self.path.endswith("missing")
        content = json.dumps({"kind": "ConfigMap"} if is_there else {"kind": "Status", "message": "no"}).encode()
        self.send_response(200 if is_there else 404)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _answer

    def log_message(self, *_arguments: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def api(server: Server) -> Api:
    return Api(Access("http://127.0.0.1:%d" % server.server_address[1], ssl.create_default_context(), {}, ""))


@pytest.mark.parametrize("is_unlimited", [False, True])
def test_reads_use_one_connection_again_and_writes_their_own(server: Server, api: Api, is_unlimited: bool) -> None:
    """A write may not be repeated, so it must not meet a connection that the server ends meanwhile."""
    api = api.unlimited() if is_unlimited else api
    for _ in range(3):
        assert api.get(PLACE) is not None
    api.create(PLACE._replace(name=""), {})
    assert api.get(PLACE) is not None
    assert server.requests == [("GET", 0), ("GET", 0), ("GET", 0), ("POST", 1), ("GET", 0)]


def test_a_connection_that_the_server_has_ended_is_replaced(server: Server, api: Api) -> None:
    assert api.get(PLACE) is not None
    server.end_connections()
    assert api.get(PLACE) is not None
    assert server.requests == [("GET", 0), ("GET", 1)]


def test_a_refusal_keeps_its_connection(server: Server, api: Api) -> None:
    assert api.get(PLACE) is not None
    assert api.get(Place("configmaps", "missing", "default")) is None
    assert api.get(PLACE) is not None
    assert [number for _, number in server.requests] == [0, 0, 0]


def test_requests_at_once_have_connections_of_their_own(server: Server, api: Api) -> None:
    server.together = threading.Barrier(4)
    threads = [threading.Thread(target=api.get, args=(PLACE,)) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    server.together = threading.Barrier(1)
    assert sorted(number for _, number in server.requests) == [0, 1, 2, 3]
    assert api.get(PLACE) is not None
    assert len(server.connections) == 4


def test_a_server_that_is_away_is_told_in_spite_of_an_open_connection(server: Server, api: Api) -> None:
    assert api.get(PLACE) is not None
    server.end_connections()
    server.shutdown()
    server.server_close()
    with pytest.raises(Unavailable, match="does not answer: Connection refused"):
        api.get(PLACE)


@pytest.mark.filterwarnings("error")
def test_open_connections_end_with_the_client(server: Server, api: Api) -> None:
    other = Api(api._access)
    assert other.get(PLACE) is not None
    (connection,) = server.connections
    assert connection.fileno() >= 0
    del other
    until = time.monotonic() + 5
    # The server closes its side once the client has.
    while connection.fileno() >= 0:
        assert time.monotonic() < until
        time.sleep(0.01)


@pytest.mark.parametrize("mark", ["#", "/", "?"])
def test_an_invalid_address_of_a_proxy_is_said_without_its_password(mark: str) -> None:
    proxy = f"http://user:CANARY{mark}word@proxy.example:3128"
    with pytest.raises(ApiError, match="the proxy's address is invalid") as raised:
        Api(Access("https://api.example", ssl.create_default_context(), {}, proxy))
    assert "CANARY" not in "".join(traceback.format_exception(raised.type, raised.value, raised.tb))
