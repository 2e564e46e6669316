"""What a run says where the API server is away, breaks off, or lets the user do nothing: for each node, what to do."""

from __future__ import annotations

import contextlib
import http.server
import threading
import types

import pytest
from ansible.plugins.action import ActionBase
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.kubernetes import api
from ansible_collections.nodedevices.kubernetes.plugins.action import daemonset

NODES = ["worker1", "worker2"]
#: Step to the hosts that it concerns.
STEPS = {
    "configure": "worker1",
    "deploy": "worker1, worker2",
    "select": "worker1",
    "wait": "worker1",
    "remove": "worker1",
    "dismantle": "worker1, worker2",
}


@pytest.fixture
def run(cluster, monkeypatch):
    """What a step says: run(step, kubeconfig)."""
    monkeypatch.setattr(ActionBase, "run", lambda self, tmp=None, task_vars=None: {})

    def run_step(step, kubeconfig):
        action = object.__new__(daemonset.ActionModule)
        declared = {"configuration": {"resources": [{"name": "a.example/b", "devices": []}]}}
        arguments = {"step": step, "kubeconfig": kubeconfig, "declaration": declared, "patience": 0.2}
        action._task = types.SimpleNamespace(args=arguments, check_mode=False)
        result = action.run(None, {"inventory_hostname": "worker1", "ansible_play_hosts": NODES})
        assert result["failed"] is True
        return result["msg"]

    return run_step


@pytest.mark.parametrize(("step", "concerned"), STEPS.items())
def test_an_api_server_that_is_away(run, cluster, unused_server, step, concerned):
    assert run(step, cluster.kubeconfig(server=unused_server)) == (
        f"{concerned}: the API server {unused_server} does not answer: Connection refused: run again when it does"
    )


@pytest.mark.parametrize(("step", "concerned"), STEPS.items())
def test_a_user_who_may_do_nothing(run, cluster, step, concerned):
    said = run(step, cluster.kubeconfig({"token": "nobody-token"}))
    assert said.startswith(f"{concerned}: ")
    assert ' is forbidden: User "nobody" cannot ' in said
    assert ": give this user " in said
    assert "Role" in said.rpartition(" in a ")[2]


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


def hang_up(_request):
    pass


def answer_half(request):
    request.send_response(200)
    request.send_header("Content-Length", "100")
    request.end_headers()
    request.wfile.write(b"{")


@pytest.mark.parametrize("does", [hang_up, answer_half])
def test_a_server_that_breaks_off_is_away_too(does):
    with answering(does) as address, pytest.raises(api.Away, match=r"does not answer: .*: run again when it does"):
        api.Api(api.Access(address, None, {}, "")).node("worker1")


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_load_balancer_without_an_api_server_is_away_too(code):
    with answering(lambda request: request.send_error(code)) as address:
        expected = rf"answered {code} to GET of node worker1: [A-Z][A-Za-z ]*: run again when it does its work$"
        with pytest.raises(api.Away, match=expected):
            api.Api(api.Access(address, None, {}, "")).node("worker1")


def test_a_login_in_front_gets_no_token():
    seen = []

    def redirect(request):
        seen.append((request.path, request.headers["Authorization"]))
        request.send_response(302)
        request.send_header("Location", "/login")
        request.end_headers()

    says = r"answered 302 to GET of node worker1: Found: it is no API server that sends to /login$"
    with answering(redirect) as address, pytest.raises(api.ApiError, match=says):
        api.Api(api.Access(address, None, {"Authorization": "Bearer secret"}, "")).node("worker1")
    assert seen == [("/api/v1/nodes/worker1", "Bearer secret")]
