"""What stands in front of an API server: a load balancer, a login, a check of certificates; and a pod behind it."""

from __future__ import annotations

import contextlib
import datetime
import http.server
import json
import socket
import ssl
import threading
import types

import certificates
import pytest

from node_device_plugin.cluster import api, kubeconfig


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


METRICS = api.Place("pods", "plugin-x:8080", "devices", part="proxy/metrics")


def saying(code, content):
    def say(request):
        request.send_response(code)
        request.end_headers()
        request.wfile.write(content if isinstance(content, bytes) else json.dumps(content).encode())

    return say


def kubeconfig_of(server, user=None, **cluster):
    return {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "test", "user": user or {}}],
    }


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_load_balancer_without_an_api_server_is_away_too(code):
    with answering(lambda request: request.send_error(code)) as address:
        expected = rf"answered {code} to GET of node worker1: [A-Z][A-Za-z ]*: retry when the API server is ready$"
        with pytest.raises(api.Unavailable, match=expected):
            api.Api(api.Access(address, None, {}, "")).node("worker1")


@pytest.mark.parametrize(
    "said", ["rpc error: code = Unknown desc = context deadline exceeded", "etcdserver: request timed out"]
)
def test_an_api_server_without_its_etcd_is_away_too(said):
    expected = f"answered 500 to GET of node worker1: {said}: retry when the API server is ready$"
    answer = saying(500, {"kind": "Status", "message": said, "code": 500})
    with answering(answer) as address, pytest.raises(api.Unavailable, match=expected):
        api.Api(api.Access(address, None, {}, "")).node("worker1")


def test_what_an_api_server_cannot_do_at_all_is_not_away():
    said = "failed to create typed patch object"
    answer = saying(500, {"kind": "Status", "message": said, "code": 500})
    with answering(answer) as address, pytest.raises(api.ApiError, match=f"{said}$") as caught:
        api.Api(api.Access(address, None, {}, "")).node("worker1")
    assert not isinstance(caught.value, api.Unavailable)


@pytest.fixture
def pauses(monkeypatch):
    """How long was waited; nobody really waits, but the clock goes on."""
    waited = []
    clock = types.SimpleNamespace(monotonic=lambda: 1000 + sum(waited), sleep=waited.append)
    monkeypatch.setattr(api, "time", clock)
    return waited


def busy(times, code=429, after="5"):
    """Answers that it is too busy, so many times, and then a node."""
    left = iter(range(times))

    def answer(request):
        if next(left, None) is None:
            return saying(200, {"kind": "Node", "metadata": {"name": "worker1"}})(request)
        request.send_response(code)
        request.send_header("Retry-After", after)
        request.end_headers()
        request.wfile.write(json.dumps({"kind": "Status", "message": "please try again later"}).encode())
        return None

    return answer


@pytest.mark.parametrize(("code", "after", "waits"), [(429, "5", [5, 5]), (503, "0", [1, 1])])
def test_a_server_that_says_when_to_come_again_is_asked_again(pauses, code, after, waits):
    with answering(busy(2, code, after)) as address:
        assert api.Api(api.Access(address, None, {}, "")).node("worker1")["metadata"]["name"] == "worker1"
    assert pauses == waits


@pytest.mark.parametrize(
    ("after", "waits"), [("5", [5, 5, 5, 5]), ("60", []), ("Wed, 21 Oct 2026 07:28:00 GMT", []), ("-1", []), ("²", [])]
)
def test_it_is_not_asked_for_ever(pauses, after, waits):
    with (
        answering(busy(99, 429, after)) as address,
        pytest.raises(api.Unavailable, match="please try again later: retry when"),
    ):
        api.Api(api.Access(address, None, {}, "")).node("worker1")
    assert pauses == waits


def test_an_eviction_has_its_own_pace(pauses):
    with answering(busy(1)) as address, pytest.raises(api.Unavailable):
        api.Api(api.Access(address, None, {}, "")).get(api.Place("pods", "x", "y", part="eviction"))
    assert pauses == []


NOON = datetime.datetime(2024, 5, 1, 12, tzinfo=datetime.UTC)


@pytest.mark.parametrize(
    ("date", "moment"),
    [
        ("Wed, 01 May 2024 12:00:00 GMT", NOON),
        ("Wed, 01 May 2024 12:00:00 -0000", NOON),
        ("Wed, 01 May 99999 12:00:00 GMT", None),
        ("at noon", None),
        (None, None),
    ],
)
def test_the_servers_clock(date, moment):
    def say(request):
        request.send_response_only(200)
        if date:
            request.send_header("Date", date)
        request.end_headers()
        request.wfile.write(b'{"kind": "NodeList", "items": []}')

    with answering(say) as address:
        asked = api.Api(api.Access(address, None, {}, ""))
        assert asked.moment() is None
        asked.list(api.Place("nodes"))
        assert asked.moment() == moment


def test_a_login_in_front_gets_no_token():
    seen = []

    def redirect(request):
        seen.append((request.path, request.headers["Authorization"]))
        request.send_response(302)
        request.send_header("Location", "/login")
        request.end_headers()

    says = r"^http://localhost:\d+ is not an API server: it redirects to /login; check the kubeconfig$"
    with answering(redirect) as address, pytest.raises(api.ApiError, match=says):
        api.Api(api.Access(address, None, {"Authorization": "Bearer secret"}, "")).node("worker1")
    assert seen == [("/api/v1/nodes/worker1", "Bearer secret")]


def test_an_api_server_below_a_path(tmp_path):
    """As Rancher's proxy has those of its clusters."""
    seen = []

    def answer(request):
        seen.append(request.path)
        saying(200, {"kind": "Node", "metadata": {"name": "worker1"}})(request)

    with answering(answer) as address:
        for server in (f"{address}/k8s/clusters/c-1", f"{address}/k8s/clusters/c-1/"):
            path = tmp_path / "kubeconfig"
            path.write_text(json.dumps(kubeconfig_of(server)))
            assert api.Api(kubeconfig.read(str(path))).node("worker1")["metadata"]["name"] == "worker1"
    assert seen == ["/k8s/clusters/c-1/api/v1/nodes/worker1"] * 2


@pytest.mark.parametrize("content", [b"404 page not found", b"<html>Not Found</html>", {"error": "not found"}])
def test_an_address_without_an_api_server_says_nothing_of_nodes(content):
    with answering(saying(404, content)) as address, pytest.raises(api.ApiError) as caught:
        api.Api(api.Access(address, None, {}, "")).node("worker1")
    assert type(caught.value) is api.ApiError
    assert str(caught.value).startswith(f"{address}/api/v1/nodes/worker1 does not answer as an API server: ")


def test_a_group_that_the_cluster_has_not_got_is_missing():
    with answering(saying(404, b"404 page not found")) as address:
        monitors = api.Place("podmonitors", "x", "y", "monitoring.coreos.com/v1")
        assert api.Api(api.Access(address, None, {}, "")).get(monitors) is None


def test_a_pod_whose_port_the_api_server_does_not_reach(monkeypatch):
    monkeypatch.setattr(api, "_TIMEOUT", 0.2)
    done = threading.Event()
    with answering(lambda _request: done.wait(30)) as address:
        with pytest.raises(api.ApiError) as caught:
            api.Api(api.Access(address, None, {}, "")).text(METRICS)
        done.set()
    assert str(caught.value) == (
        "pod plugin-x:8080 in namespace devices did not answer through the API server in 0.2 s: check whether "
        "a firewall or a network policy blocks the pod's port"
    )


@pytest.mark.parametrize("does", ["hang up", "answer half"])
def test_a_server_that_breaks_off_is_away_too(does):
    def answer(request):
        if does == "answer half":
            request.send_response(200)
            request.send_header("Content-Length", "100")
            request.end_headers()
            request.wfile.write(b"{")

    with (
        answering(answer) as address,
        pytest.raises(api.Unavailable, match=r"does not answer: .*: retry when the API server answers"),
    ):
        api.Api(api.Access(address, None, {}, "")).node("worker1")


def said_of(place, code, content):
    with answering(saying(code, content)) as address, pytest.raises(api.ApiError) as caught:
        api.Api(api.Access(address, None, {}, "")).text(place)
    return type(caught.value), str(caught.value).replace(address, "SERVER")


@pytest.mark.parametrize("code", [401, 403, 404, 503])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"who are you?", "who are you?"),
        ({"message": "who are you?"}, "who are you?"),
        ({"kind": "Refusal", "message": 'User "x" cannot get'}, 'User "x" cannot get'),
        ([1], "[1]"),
    ],
)
def test_what_a_pod_refuses_is_not_the_api_servers(code, content, words):
    assert said_of(METRICS, code, content) == (
        api.ApiError,
        f"the answer {code} for pod plugin-x:8080 in namespace devices is not from the API server: {words}",
    )


def test_a_right_that_is_missing_for_a_pods_proxy():
    message = 'pods "plugin-x:8080" is forbidden: User "x" cannot get resource "pods/proxy" in API group ""'
    assert said_of(METRICS, 403, {"kind": "Status", "message": message}) == (
        api.LacksRights,
        f"{message}: give this user get on pods/proxy in a Role of namespace devices",
    )


def test_a_403_of_something_in_front_is_no_missing_right():
    _, said = said_of(api.Place("nodes"), 403, b"blocked by policy")
    assert said == "the API server SERVER answered 403 to GET of nodes: blocked by policy"


@pytest.mark.parametrize(
    "message",
    [
        'pods "x" is forbidden: exceeded quota: few, requested: pods=1, used: pods=1, limited: pods=1',
        'pods "x" is forbidden: unable to create new content in namespace y because it is being terminated',
        'users "anna" is forbidden: User "x" cannot impersonate resource "users" in API group "" at the cluster scope',
        'admission webhook "w.example.com" denied the request: no',
    ],
)
def test_what_is_forbidden_for_another_reason_asks_for_no_right(message):
    _, said = said_of(api.Place("pods", namespace="y"), 403, {"kind": "Status", "message": message})
    assert said == f"the API server SERVER answered 403 to GET of pods in namespace y: {message}"


@contextlib.contextmanager
def checking_certificates(tls):
    """A server that says what it thinks of a client's certificate, and no more; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def check():
            connection, _ = server.accept()
            # Open until the client is done: else it may find a closed connection before it reads why.
            with connection.dup() as open_until_then:
                with contextlib.suppress(ssl.SSLError):
                    tls.wrap_socket(connection, server_side=True).close()
                while open_until_then.recv(65536):
                    pass

        thread = threading.Thread(target=check)
        thread.start()
        try:
            yield f"https://localhost:{server.getsockname()[1]}"
        finally:
            thread.join()


_FOREIGN = "the client certificate of the user test: unknown ca"
_LATE = "the client certificate of the user test: certificate expired"


@pytest.mark.parametrize(
    ("who", "version", "says"),
    [
        ("foreign", ssl.TLSVersion.TLSv1_2, _FOREIGN),
        ("foreign", ssl.TLSVersion.TLSv1_3, _FOREIGN),
        ("late", ssl.TLSVersion.TLSv1_2, _LATE),
        ("late", ssl.TLSVersion.TLSv1_3, _LATE),
        # Before TLS 1.3 a server answers only that there is no agreement.
        ("nobody", ssl.TLSVersion.TLSv1_3, "a user without credentials: certificate required"),
    ],
)
def test_a_check_of_certificates_in_front(tmp_path, who, version, says):
    authority = certificates.Authority(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.minimum_version = tls.maximum_version = version
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(authority.sign("front"))
    tls.load_verify_locations(authority.path)
    (tmp_path / "other").mkdir()
    theirs = {
        "foreign": certificates.Authority(tmp_path / "other").sign("anna"),
        "late": authority.sign("late", end=datetime.datetime(2020, 3, 1, tzinfo=datetime.UTC)),
    }.get(who)
    user = {"client-certificate": str(theirs), "client-key": str(theirs)} if theirs else {}
    with checking_certificates(tls) as address:
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(kubeconfig_of(address, user, **{"certificate-authority": "ca.crt"})))
        with pytest.raises(api.ApiError) as caught:
            api.Api(kubeconfig.read(str(path))).node("worker1")
    assert type(caught.value) is api.ApiError
    assert str(caught.value) == (
        f"the API server {address} does not accept {says}: give its user a valid certificate, token or exec in {path}"
    )


def test_a_new_object_stays_unless_it_is_a_dry_run(cluster):
    asked = api.Api.of(cluster.kubeconfig())
    for name, client in (("tried", asked.dry()), ("made", asked)):
        made = client.create(api.Place("nodes"), {"metadata": {"name": name}})
        assert made["metadata"]["name"] == name
    assert asked.get(api.Place("nodes", "tried")) is None
    assert asked.get(api.Place("nodes", "made"))["metadata"]["name"] == "made"
    cluster.ask("DELETE", "/api/v1/nodes/made")
