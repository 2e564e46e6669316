"""What stands in front of an API server: a load balancer whose servers are away, a login."""

from __future__ import annotations

import contextlib
import http.server
import threading

import pytest
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.kubernetes import api


@contextlib.contextmanager
def answering(do):
    """A server at which every GET is what ``do`` makes of it; gives its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            do(self)
            self.close_connection = True

        def log_message(self, *_arguments):
            pass

    server = http.server.HTTPServer(("localhost", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://localhost:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_load_balancer_without_an_api_server_is_away_too(code):
    with answering(lambda request: request.send_error(code)) as address:
        expected = rf"answered {code} to GET of node worker1: [A-Z][A-Za-z ]*: run again when it is ready$"
        with pytest.raises(api.Away, match=expected):
            api.Api(api.Access(address, None, {}, "")).node("worker1")


def test_a_login_in_front_gets_no_token():
    seen = []

    def redirect(request):
        seen.append((request.path, request.headers["Authorization"]))
        request.send_response(302)
        request.send_header("Location", "/login")
        request.end_headers()

    says = r"^http://localhost:\d+ is no API server: it sends elsewhere, to /login$"
    with answering(redirect) as address, pytest.raises(api.ApiError, match=says):
        api.Api(api.Access(address, None, {"Authorization": "Bearer secret"}, "")).node("worker1")
    assert seen == [("/api/v1/nodes/worker1", "Bearer secret")]


@pytest.mark.parametrize("does", ["hang up", "answer half"])
def test_a_server_that_breaks_off_is_away_too(does):
    def answer(request):
        if does == "answer half":
            request.send_response(200)
            request.send_header("Content-Length", "100")
            request.end_headers()
            request.wfile.write(b"{")

    with answering(answer) as address, pytest.raises(api.Away, match=r"does not answer: .*: run again when it does"):
        api.Api(api.Access(address, None, {}, "")).node("worker1")
