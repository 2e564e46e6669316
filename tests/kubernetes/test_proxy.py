"""Which proxy leads to an API server, as kubectl understands the environment; and a proxy that really is asked."""

from __future__ import annotations

import base64
import select
import socket
import socketserver
import threading

import pytest

from node_device_plugin.cluster import kubeconfig
from node_device_plugin.cluster.api import Api, ApiError
from node_device_plugin.cluster.proxy import proxy_for

PROXY = "http://proxy.example:3128"


@pytest.mark.parametrize(
    ("server", "direct"),
    [
        # Without a word of NO_PROXY: such as kind's.
        ("https://127.0.0.1:6443", True),
        ("https://localhost:6443", True),
        ("https://[::1]:6443", True),
        ("https://10.1.2.3:6443", True),
        ("https://11.1.2.3:6443", False),
        ("https://[fd00::5]:6443", True),
        ("https://[fd01::5]:6443", True),
        ("https://[fd01::5]:443", False),
        ("https://192.168.1.5", True),
        ("https://192.168.1.50", False),
        ("https://a.corp.example", True),
        ("https://corp.example", False),
        ("https://exact.example", True),
        ("https://a.exact.example", True),
        ("https://inexact.example", False),
        ("https://a.star.example", True),
        ("https://star.example", False),
        ("https://port.example:6443", True),
        ("https://port.example:443", False),
        ("https://default.example", True),
    ],
)
def test_what_no_proxy_means(server, direct):
    words = (
        "10.0.0.0/8, fd00::/16,[fd01::5]:6443,192.168.1.5,.corp.example,exact.example,*.star.example,port.example:6443,"
        "default.example:443,nonsense/8,,"
    )
    assert proxy_for(server, {"https": PROXY, "no": words}) == ("" if direct else PROXY)
    assert proxy_for(server, {"https": PROXY, "no": "*"}) == ""
    assert proxy_for(server, {"http": PROXY}) == ""


class _Proxy(socketserver.ThreadingTCPServer):
    """Answers CONNECT; remembers what it was asked."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.asked = []


class _Tunnel(socketserver.StreamRequestHandler):
    def handle(self):
        lines = []
        while not lines or lines[-1]:
            lines.append(self.rfile.readline().decode().strip())
        self.server.asked.append(lines)
        host, _, port = lines[0].split()[1].rpartition(":")
        with socket.create_connection((host, int(port))) as there:
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            ends = {self.connection: there, there: self.connection}
            while True:
                for ready in select.select(list(ends), [], [])[0]:
                    data = ready.recv(65536)
                    if not data:
                        return
                    ends[ready].sendall(data)


@pytest.fixture
def proxy():
    with _Proxy() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_the_kubeconfigs_proxy_is_asked_whatever_the_environment_says(cluster, proxy, monkeypatch):
    node = cluster.node({"cpu": "2"})
    # Neither are its exceptions: they are those of the environment's proxy.
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "*")
    address = f"http://anna:p%40ss@127.0.0.1:{proxy.server_address[1]}"
    access = kubeconfig.read(cluster.kubeconfig(**{"proxy-url": address}))
    assert Api(access).node(node.name)["metadata"]["name"] == node.name
    ((line, *headers),) = proxy.asked
    assert line.split()[:2] == ["CONNECT", cluster.server.removeprefix("https://")]
    said = dict(header.split(": ", 1) for header in headers if header)
    assert said["Proxy-Authorization"] == "Basic " + base64.b64encode(b"anna:p@ss").decode()
    # What is the cluster's, the proxy never sees.
    assert "Authorization" not in said


def test_the_environments_proxy_is_not_asked_for_this_machine(cluster, monkeypatch):
    node = cluster.node({"cpu": "2"})
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert Api(kubeconfig.read(cluster.kubeconfig())).node(node.name)["metadata"]["name"] == node.name


@pytest.mark.parametrize("address", ["socks5://127.0.0.1:1080", "https://127.0.0.1:1", "http://127.0.0.1:port"])
def test_a_proxy_that_cannot_be_asked(cluster, address):
    with pytest.raises(ApiError, match="cannot use the proxy for the API server "):
        Api(kubeconfig.read(cluster.kubeconfig(**{"proxy-url": address})))
