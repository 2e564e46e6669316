"""What stands in the way of a DRA driver with a node's kubeconfig, and which files its sandbox must show."""

from __future__ import annotations

import http.server
import json
import pathlib
import threading
from collections.abc import Iterator
from typing import Any, Callable

import pytest
import yaml

from node_device_plugin.cluster import dra_access
from node_device_plugin.declaration.model import DraDriver
from node_device_plugin.support import directory_names

NODES, SLICES = "/api/v1/nodes/worker", "/apis/resource.k8s.io/v1/resourceslices"
Answers = dict[str, tuple[int, dict[str, Any]]]


def refusal(code: int, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}


@pytest.fixture
def api() -> Iterator[tuple[str, Answers, list[tuple[str, str, Any]]]]:
    """The address of a server that answers each path as told, and the requests that it got."""
    answers: Answers = {}
    asked: list[tuple[str, str, Any]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path, _, query = self.path.partition("?")
            asked.append((f"{self.command} {path}", query, json.loads(content or "null")))
            code, answer = answers.get(f"{self.command} {path}", (200, {"kind": "X", "items": []}))
            said = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        do_POST = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answers, asked
    server.shutdown()
    server.server_close()


@pytest.fixture
def kubeconfig(tmp_path: pathlib.Path) -> Callable[..., str]:
    def write(server: str, user: dict[str, Any] | None = None, **cluster: str) -> str:
        path = tmp_path / "kubelet.conf"
        content = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
            "users": [{"name": "u", "user": user or {}}],
        }
        path.write_text(yaml.safe_dump(content))
        return str(path)

    return write


@pytest.fixture(autouse=True)
def sandbox(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    """A sandbox that hides directories of the test, and shows /tmp."""
    monkeypatch.setattr(directory_names, "NEVER_SHOWN", (f"{tmp_path}/home",))
    monkeypatch.setattr(directory_names, "HIDDEN", (f"{tmp_path}/home", f"{tmp_path}/etc/kubernetes"))


def look(path: str) -> dra_access.Access:
    return dra_access.look(DraDriver("d.example.com", "worker", path))


def test_an_access_that_works_stores_nothing(
    api: tuple[str, Answers, list[tuple[str, str, Any]]], kubeconfig: Callable[..., str]
) -> None:
    server, _, asked = api
    path = kubeconfig(server)
    assert look(path) == (None, (path,))
    assert [request for request, _, _ in asked] == [f"GET {NODES}", f"GET {SLICES}", f"POST {SLICES}"]
    assert "fieldSelector=spec.nodeName%3Dworker%2Cspec.driver%3Dd.example.com" in asked[1][1]
    assert "dryRun=All" in asked[2][1]
    spec = asked[2][2]["spec"]
    # With the longest name of a node, another name of the pool would be too long.
    assert (spec["driver"], spec["nodeName"], spec["pool"]["name"]) == ("d.example.com", "worker", "trial")


@pytest.mark.parametrize(
    ("request_line", "answer", "says"),
    [
        (f"GET {NODES}", refusal(404, 'nodes "worker" not found'), "the cluster has no node worker"),
        (
            f"GET {SLICES}",
            refusal(404, "the server could not find the requested resource"),
            "the cluster does not serve resource.k8s.io/v1: upgrade Kubernetes to 1.34 or later, or set api: "
            "device_plugin",
        ),
        (
            f"GET {SLICES}",
            refusal(403, 'resourceslices is forbidden: User "u" cannot list resource "resourceslices"'),
            "give this user list on resourceslices.resource.k8s.io in a ClusterRole",
        ),
        (
            f"POST {SLICES}",
            refusal(403, 'resourceslices is forbidden: User "u" cannot create resource "resourceslices"'),
            "give this user create on resourceslices.resource.k8s.io in a ClusterRole",
        ),
    ],
)
def test_what_the_api_server_refuses(
    api: tuple[str, Answers, list[tuple[str, str, Any]]],
    kubeconfig: Callable[..., str],
    request_line: str,
    answer: tuple[int, dict[str, Any]],
    says: str,
) -> None:
    server, answers, _ = api
    answers[request_line] = answer
    problem = look(kubeconfig(server)).problem
    assert problem is not None
    assert says in problem


def test_a_kubeconfig_that_the_service_cannot_use(tmp_path: pathlib.Path, kubeconfig: Callable[..., str]) -> None:
    missing = str(tmp_path / "none")
    assert look(missing).problem == f"{missing}: No such file or directory"
    runs = tmp_path / "ran"
    program = {"exec": {"command": "touch", "args": [str(runs)]}}
    assert "exec is set, but the device plugin runs no program" in str(look(kubeconfig("https://h", program)).problem)
    assert not runs.exists()
    token = tmp_path / "a:b"
    token.write_text("t")
    says = f"{token} must not contain ':': systemd units or pod mounts interpret these characters"
    assert look(kubeconfig("https://h", {"tokenFile": str(token)})).problem == says


def test_a_renewed_certificate_stays_visible_and_nothing_else_becomes_so(
    tmp_path: pathlib.Path, kubeconfig: Callable[..., str]
) -> None:
    pki, other = tmp_path / "pki", tmp_path / "other"
    pki.mkdir()
    other.mkdir()
    for name in ("kubelet-client-1.pem", "ca.crt", "token"):
        (pki / name).write_text("")
    (pki / "current.pem").symlink_to("kubelet-client-1.pem")
    (other / "moved.pem").symlink_to(pki / "kubelet-client-1.pem")
    (other / "ca.crt").write_text("")
    files = [str(tmp_path / "kubelet.conf"), str(pki / "current.pem"), str(pki / "ca.crt"), str(other / "ca.crt")]
    assert dra_access.shown(files) == {files[0], str(pki), str(other / "ca.crt")}
    assert dra_access.shown([str(other / "moved.pem")]) == {str(pki), str(other)}


HIDES = "but the sandbox of the plugin's service hides"
LINK, FILE = "move it, or name the link's target", "move it to another directory"


@pytest.mark.parametrize(
    ("link", "target", "says"),
    [
        (None, "etc/kubernetes/kubelet.conf", None),
        (None, "kubelet/kubeconfig", None),
        ("srv/kubelet.conf", "kubelet/pki/kubelet.conf", None),
        (
            "etc/kubernetes/kubelet.conf",
            "srv/a.conf",
            f"{{link}} needs {{root}}/etc/kubernetes, {HIDES} {{root}}/etc/kubernetes: {LINK}",
        ),
        (
            "srv/kubelet.conf",
            "etc/kubernetes/a.conf",
            f"{{link}} needs {{root}}/etc/kubernetes, {HIDES} {{root}}/etc/kubernetes: {LINK}",
        ),
        ("kubelet/kubeconfig", "srv/a.conf", f"{{link}} needs {{root}}/kubelet, {HIDES} {{root}}/kubelet: {LINK}"),
        ("srv/kubelet.conf", "home/me/a.conf", f"{{link}} needs {{root}}/home/me, {HIDES} {{root}}/home: {LINK}"),
        (None, "home/me/a.conf", f"{{target}} needs {{root}}/home/me, {HIDES} {{root}}/home: {FILE}"),
    ],
)
def test_a_sandbox_shows_no_directory_of_secrets(
    api: tuple[str, Answers, list[tuple[str, str, Any]]],
    kubeconfig: Callable[..., str],
    tmp_path: pathlib.Path,
    link: str | None,
    target: str,
    says: str | None,
) -> None:
    given = pathlib.Path(kubeconfig(api[0]))
    place = tmp_path / target
    place.parent.mkdir(parents=True)
    given.rename(place)
    path = place
    if link:
        path = tmp_path / link
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(place)
    found = dra_access.look(DraDriver("d.example.com", "worker", str(path)), f"{tmp_path}/kubelet").problem
    assert found == (says and says.format(link=path, target=place, root=tmp_path))
    # A refused file leads to no request.
    assert bool(api[2]) is not bool(says)


def test_the_files_that_a_kubeconfig_names(kubeconfig: Callable[..., str], tmp_path: pathlib.Path) -> None:
    from node_device_plugin.cluster import kubeconfig as module

    user = {"client-certificate": "pki/c.pem", "client-key": "/k.pem", "client-key-data": "eA==", "tokenFile": "../t"}
    path = kubeconfig("https://h", user, **{"certificate-authority": "/ca.crt"})
    assert module.files(path) == [path, "/ca.crt", f"{tmp_path}/pki/c.pem", str(tmp_path.parent / "t")]
