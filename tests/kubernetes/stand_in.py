"""An API server's nodes: HTTPS, users, RFC 6902, and what the real one does with a node's status.

Taken from kube-apiserver 1.36.2, which the same tests run against where it is there: the status codes and messages, the
canonical form of quantities (1000 is 1k), annotations that change through the status subresource while the rest of the
metadata does not, and managedFields.
"""

from __future__ import annotations

import contextlib
import copy
import http.server
import itertools
import json
import pathlib
import socket
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any

import jsonpatch
from stand_in_pods import Pods, StatusError

#: The node that has a kubelet's credentials.
KUBELETS_NODE = "kubelet-node"
#: Token to user. Only admin may patch, and a kubelet its own node.
TOKENS = {
    "admin-token": "admin",
    "reader-token": "reader",
    "kubelet-token": f"system:node:{KUBELETS_NODE}",
    "nobody-token": "nobody",
}


class Nodes:
    """The node objects."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._nodes: dict[str, dict[str, Any]] = {}
        self._versions = itertools.count(1)
        #: What a watch tells, with the version of each change.
        self._changes: list[tuple[int, dict[str, Any]]] = []
        self._version = 0
        self._changed_now = threading.Condition(self._lock)

    def create(self, node: dict[str, Any], dry_run: bool) -> dict[str, Any]:
        with self._lock:
            node = {"kind": "Node", "apiVersion": "v1", "spec": {}, "status": {}, **node}
            if not dry_run:
                self._nodes[node["metadata"]["name"]] = self._changed(node, "ADDED")
            return node

    def read(self, name: str) -> dict[str, Any]:
        with self._lock:
            return copy.deepcopy(self._of(name))

    def all(self) -> dict[str, Any]:
        metadata = {"resourceVersion": str(self._version)}
        return {"kind": "NodeList", "metadata": metadata, "items": list(self._nodes.values())}

    def watch(self, after: int, seconds: float) -> Iterator[dict[str, Any]]:
        """The changes after a version, for so long."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            with self._lock:
                found = [each for each in self._changes if each[0] > after]
                if not found:
                    self._changed_now.wait(until - time.monotonic())
            for version, change in found:
                yield change
                after = version

    def delete(self, name: str) -> dict[str, Any]:
        with self._lock:
            return self._changed(self._nodes.pop(name), "DELETED")

    def replace(self, name: str, node: dict[str, Any], dry_run: bool) -> dict[str, Any]:
        """Metadata and spec; a node that names another version than its present one is refused."""
        changed = {**node, "status": self.read(name).get("status", {})}
        return self.merge(name, changed, dry_run)

    def merge(self, name: str, patch: dict[str, Any], dry_run: bool) -> dict[str, Any]:
        """A merge patch (RFC 7386) of metadata and spec."""
        with self._lock:
            now = self._of(name)
            expected = patch.get("metadata", {}).pop("resourceVersion", None)
            if expected not in (None, now["metadata"]["resourceVersion"]):
                raise StatusError(
                    409,
                    f'Operation cannot be fulfilled on nodes "{name}": the object has been modified; please apply your '
                    f"changes to the latest version and try again",
                )
            node = _merged(now, patch)
            if not dry_run:
                self._nodes[name] = self._changed(node)
            return copy.deepcopy(node)

    def _changed(self, node: dict[str, Any], kind: str = "MODIFIED") -> dict[str, Any]:
        self._version = next(self._versions)
        node["metadata"]["resourceVersion"] = str(self._version)
        self._changes.append((self._version, copy.deepcopy({"type": kind, "object": node})))
        self._changed_now.notify_all()
        return node

    def patch_status(self, name: str, operations: Any, manager: str, dry_run: bool) -> dict[str, Any]:
        with self._lock:
            now = self._of(name)
            try:
                patched = jsonpatch.apply_patch(now, operations)
            except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException):
                raise StatusError(422, "the server rejected our request due to an error in our request") from None
            node = {**now, "metadata": dict(now["metadata"]), "status": patched["status"]}
            node["metadata"]["annotations"] = patched["metadata"].get("annotations", {})
            for part in ("capacity", "allocatable"):
                for resource, quantity in node["status"].get(part, {}).items():
                    node["status"][part][resource] = _canonical(name, part, resource, quantity)
            node["metadata"]["managedFields"] = _owned(now, node, manager)
            if not dry_run:
                self._nodes[name] = node if node == now else self._changed(node)
            return copy.deepcopy(node)

    def _of(self, name: str) -> dict[str, Any]:
        if name not in self._nodes:
            raise StatusError(404, f'nodes "{name}" not found')
        return self._nodes[name]


def _merged(content: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(content) if isinstance(content, dict) else {}
    for key, value in patch.items():
        result[key] = _merged(result.get(key), value)
        if value is None:
            del result[key]
    return result


def _canonical(node: str, part: str, resource: str, quantity: str) -> str:
    if "/" not in resource:
        return quantity
    if not quantity.isdigit():
        if quantity[-1] == "k" and quantity[:-1].isdigit():
            return quantity
        raise StatusError(
            422, f'Node "{node}" is invalid: status.{part}.{resource}: Invalid value: "{quantity}": must be an integer'
        )
    number = int(quantity)
    return f"{number // 1000}k" if number and number % 1000 == 0 and number < 10**6 else str(number)


def _owned(before: dict[str, Any], after: dict[str, Any], manager: str) -> list[dict[str, Any]]:
    """Who changed a capacity last owns it."""
    old, new = (node["status"].get("capacity", {}) for node in (before, after))
    owners = {
        field[2:]: entry["manager"]
        for entry in before["metadata"].get("managedFields", ())
        for field in entry["fieldsV1"]["f:status"]["f:capacity"]
    }
    owners = {name: manager if old.get(name) != new[name] else owners.get(name, manager) for name in new}
    return [
        {
            "manager": one,
            "subresource": "status",
            "fieldsV1": {"f:status": {"f:capacity": {f"f:{name}": {} for name in owners if owners[name] == one}}},
        }
        for one in sorted(set(owners.values()))
    ]


@contextlib.contextmanager
def serving(certificate: pathlib.Path, authority: pathlib.Path) -> Iterator[int]:
    """Serves; gives the port on localhost."""
    nodes, pods = Nodes(), Pods()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle(self) -> None:
            try:
                super().handle()
            except ssl.SSLError:
                # Who is refused while the connection is made reads why only on one that is still open.
                with socket.socket(fileno=self.connection.detach()) as refused:
                    while refused.recv(65536):
                        pass

        def _handle(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(self.path).query))
            if "watch" in query:
                self.close_connection = True
                self.send_response(200)
                self.send_header("Connection", "close")
                self.end_headers()
                with contextlib.suppress(OSError):
                    for change in nodes.watch(int(query["resourceVersion"]), float(query["timeoutSeconds"])):
                        self.wfile.write(json.dumps(change).encode() + b"\n")
                return
            try:
                code, answer = 200, self._answer(json.loads(content or "null"))
            except StatusError as refusal:
                code = refusal.code
                answer = {"kind": "Status", "status": "Failure", "message": refusal.message, "code": code}
                answer["details"] = {"causes": list(refusal.causes)}
            text = json.dumps(answer).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

        def _answer(self, content: Any) -> dict[str, Any]:
            user = self._user()
            address = urllib.parse.urlsplit(self.path)
            query = dict(urllib.parse.parse_qsl(address.query))
            parts = address.path.split("/")[1:]
            if parts[2] != "nodes" or parts[0] == "apis":
                parts = parts[3 if parts[0] == "apis" else 2 :]
                if user != "admin":
                    whom = f'pods is forbidden: User "{user}"'
                    raise StatusError(403, f'{whom} cannot list resource "pods" in API group "" at the cluster scope')
                return pods.answer(self.command, parts, query, content)
            name = urllib.parse.unquote(parts[3]) if len(parts) > 3 else ""
            if user == f"system:node:{KUBELETS_NODE}" and name != KUBELETS_NODE:
                raise StatusError(
                    403, f'nodes "{name}" is forbidden: node "{KUBELETS_NODE}" is not allowed to modify node "{name}"'
                )
            is_kubelet = user == f"system:node:{name}" and self.command in ("GET", "PATCH")
            if user != "admin" and not is_kubelet and (user, self.command) != ("reader", "GET"):
                does = f"{self.command.lower()} resource {json.dumps('nodes/status' if parts[4:] else 'nodes')}"
                whom = f'nodes "{name}" is forbidden: User "{user}"'
                raise StatusError(403, f'{whom} cannot {does} in API group "" at the cluster scope')
            if self.command == "POST":
                return nodes.create(content, query.get("dryRun") == "All")
            if self.command == "DELETE":
                return nodes.delete(name)
            if self.command == "PUT":
                return nodes.replace(name, content, query.get("dryRun") == "All")
            if self.command == "GET":
                return nodes.read(name) if name else nodes.all()
            if self.headers["Content-Type"] == "application/merge-patch+json":
                return nodes.merge(name, content, query.get("dryRun") == "All")
            if self.headers["Content-Type"] != "application/json-patch+json":
                raise StatusError(415, "the body of the request was in an unknown format")
            return nodes.patch_status(name, content, query.get("fieldManager", ""), query.get("dryRun") == "All")

        def _user(self) -> str:
            certificate = self.connection.getpeercert() or {}
            for ((key, value),) in certificate.get("subject", ()):
                if key == "commonName":
                    return value
            user = TOKENS.get(self.headers.get("Authorization", "").removeprefix("Bearer "))
            if user is None:
                raise StatusError(401, "Unauthorized")
            return self.headers.get("Impersonate-User", user) if user == "admin" else user

        def log_message(self, *_arguments: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("localhost", 0), Handler)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    tls.load_verify_locations(authority)
    tls.verify_mode = ssl.CERT_OPTIONAL
    server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
