"""The plugin's pods with their tokens, and the rights that ``manifests`` renders for them."""

from __future__ import annotations

import contextlib
import itertools
import json
import urllib.error
import urllib.request

from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster import in_pod, manifests
from ansible_collections.nodedevices.kubernetes.plugin.node_device_plugin.cluster.api import Api

MERGE = "application/merge-patch+json"
_numbers = itertools.count()


class Pod:
    """The plugin's pod on a node, with its token. directory: the parent of the token's directory.

    bound: of the request for the token, which names no node then.
    """

    def __init__(self, cluster, namespace, node, directory, **bound):
        self.cluster, self.node, self.directory = cluster, node, directory / f"token-{next(_numbers)}"
        path = f"/api/v1/namespaces/{namespace}"
        if not bound:
            name = f"plugin-{next(_numbers)}"
            spec = {
                "nodeName": node.name,
                "serviceAccountName": "node-device-plugin",
                "containers": [{"name": "plugin", "image": "example.com/plugin:1"}],
            }
            pod = cluster.ask("POST", f"{path}/pods", {"metadata": {"name": name}, "spec": spec})
            bound = {"boundObjectRef": {"kind": "Pod", "apiVersion": "v1", "name": name, "uid": pod["metadata"]["uid"]}}
        request = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {**bound, "audiences": []}}
        answer = cluster.ask("POST", f"{path}/serviceaccounts/node-device-plugin/token", request)
        self.token = answer["status"]["token"]
        self.directory.mkdir()
        (self.directory / "token").write_text(self.token + "\n")
        (self.directory / "ca.crt").write_text(cluster.authority.path.read_text())

    def connect(self):
        host, port = self.cluster.server.removeprefix("https://").split(":")
        variables = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
        return Api(in_pod.access(variables, str(self.directory)))

    def ask(self, method, path, content=None, kind="application/json"):
        """Returns the status code and the message."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        data = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"{self.cluster.server}{path}", data, headers, method=method)
        try:
            with self.cluster.opener.open(request, timeout=10) as answer:
                return answer.status, ""
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)["message"]


@contextlib.contextmanager
def rights(cluster, namespace, drivers=(), **settings):
    """Create the rights of the pods of a deployment, which go at the end."""
    deployment = manifests.parse_deployment({"image": "a", "namespace": namespace, **settings})
    cluster.ask("POST", "/api/v1/namespaces", manifests.namespace(deployment).content)
    made = []
    for content in (manifest.content for manifest in manifests.rights(deployment, drivers)):
        kind = content["kind"].lower()
        plural = f"{kind.removesuffix('y')}ies" if kind.endswith("policy") else f"{kind}s"
        group = f"/apis/{content['apiVersion']}"
        path = f"/api/v1/namespaces/{namespace}/{plural}" if kind == "serviceaccount" else f"{group}/{plural}"
        cluster.ask("POST", path, content)
        made.append(f"{path}/{content['metadata']['name']}")
    yield
    for path in reversed(made):
        cluster.ask("DELETE", path)
