"""A real API server (KUBERNETES_BIN_DIR) for measurements, and the requests that it got."""

from __future__ import annotations

import collections
import contextlib
import http.client
import json
import pathlib
import secrets
import ssl
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from typing import Any

import certificates
import real
import yaml

from node_device_plugin.cluster.api import FIELD_MANAGER

#: As in cluster/api.py.
PAGE = 500
#: Behind the name of a request that stores nothing.
DRY = " (dry run)"
_TOKEN = secrets.token_hex(16)
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived", "ResponseStarted"],
    "rules": [{"level": "None", "verbs": ["watch"]}, {"level": "Metadata"}],
}


class Cluster:
    """A control plane. Each thread has its own connection to the API server."""

    def __init__(self, directory: pathlib.Path, authority: certificates.Authority, port: int) -> None:
        self.tls = ssl.create_default_context(cafile=str(authority.path))
        self._port, self._of_thread = port, threading.local()
        self._directory, self._authority = directory, authority
        self._audit = directory / "audit.log"
        self.kubeconfig = self.kubeconfig_of("admin", _TOKEN)

    def kubeconfig_of(self, name: str, token: str) -> pathlib.Path:
        """Write a user's kubeconfig; returns its path."""
        cluster = {"server": f"https://localhost:{self._port}", "certificate-authority": str(self._authority.path)}
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "clusters": [{"name": "bench", "cluster": cluster}],
            "users": [{"name": "bench", "user": {"token": token}}],
        }
        path = self._directory / f"kubeconfig-{name}"
        path.write_text(yaml.safe_dump(content))
        return path

    def ask(
        self, method: str, path: str, content: Any = None, kind: str = "application/json", accept: str = ""
    ) -> dict[str, Any]:
        """Send a request. Raises RuntimeError if the API server refuses it."""
        if not hasattr(self._of_thread, "connection"):
            self._of_thread.connection = http.client.HTTPSConnection("localhost", self._port, context=self.tls)
        headers = {"Authorization": f"Bearer {_TOKEN}", "Content-Type": kind, "Accept": accept or "application/json"}
        connection = self._of_thread.connection
        try:
            connection.request(method, path, content and json.dumps(content), headers)
            answer = connection.getresponse()
        except http.client.RemoteDisconnected:
            # The API server closes a connection that is idle for long, so open it again.
            connection.close()
            connection.request(method, path, content and json.dumps(content), headers)
            answer = connection.getresponse()
        said = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {said.decode()[:500]}")
        found: dict[str, Any] = json.loads(said)
        return found

    def list(self, path: str, accept: str = "", **query: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        query["limit"] = str(PAGE)
        while True:
            answer = self.ask("GET", f"{path}?{urllib.parse.urlencode(query)}", accept=accept)
            found += answer["items"] or ()
            if not answer["metadata"].get("continue"):
                return found
            query["continue"] = answer["metadata"]["continue"]

    def versions(self) -> dict[str, str]:
        """Return the version of each object that a play might write, by the object's name."""
        paths = [f"/api/v1/{kinds}" for kinds in ("nodes", "pods", "configmaps", "namespaces")]
        accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        found = {}
        for path in [*paths, "/apis/apps/v1/daemonsets"]:
            # The DaemonSet controller writes the status at any time.
            key = "generation" if path.endswith("daemonsets") else "resourceVersion"
            for each in self.list(path, accept):
                found[f"{path.rpartition('/')[2]} {each['metadata']['name']}"] = str(each["metadata"][key])
        return found

    @contextlib.contextmanager
    def counted(self) -> Iterator[collections.Counter[str]]:
        """Yield a counter that has our clients' requests afterwards, by verb and kind. Watches do not count."""
        begin, found = self._audit.stat().st_size, collections.Counter[str]()
        yield found
        # The API server writes a line after the answer.
        time.sleep(1)
        with self._audit.open("rb") as log:
            log.seek(begin)
            for event in map(json.loads, log):
                if event.get("userAgent") == FIELD_MANAGER:
                    place = event.get("objectRef", {})
                    what = "/".join(filter(None, (place.get("resource"), place.get("subresource"))))
                    found[f"{event['verb']} {what}{DRY if 'dryRun=All' in event['requestURI'] else ''}"] += 1


@contextlib.contextmanager
def api_server(directory: pathlib.Path, tokens: Mapping[str, str]) -> Iterator[Cluster]:
    """Yield an API server with etcd. directory: writable. tokens: the user of each token, beside the administrator.

    Raises RuntimeError without the programs.
    """
    if not real.programs():
        raise RuntimeError("KUBERNETES_BIN_DIR names no API server: run make kubernetes first")
    authority = certificates.Authority(directory)
    policy = directory / "audit.yaml"
    policy.write_text(yaml.safe_dump(_AUDIT))
    audit = [f"--audit-policy-file={policy}", f"--audit-log-path={directory}/audit.log"]
    with real.serving(directory, authority, {_TOKEN: "admin", **tokens}, audit) as port:
        cluster = Cluster(directory, authority, port)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=cluster.tls)
        )
        real.wait_until_ready(opener, f"https://localhost:{port}", _TOKEN)
        print("judged by: kube-apiserver %s" % cluster.ask("GET", "/version")["gitVersion"], flush=True)
        yield cluster


def writes(requests: Mapping[str, int]) -> int:
    """Return the number of requests that may store something. requests: by verb and kind."""
    return sum(count for what, count in requests.items() if not what.startswith(("get ", "list ")) and DRY not in what)
