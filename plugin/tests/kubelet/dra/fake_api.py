"""What an API server does with the ResourceSlices of a node, over HTTP. tests/kubernetes asks a real one the same."""

from __future__ import annotations

import contextlib
import copy
import http.server
import json
import ssl
import threading
import time
import urllib.parse
from collections.abc import Iterator
from typing import Any, Callable

from node_device_plugin.cluster.api import Access, Api

NODE_UID = "6a1c0b1e-0000-4000-8000-000000000001"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"


class FakeApi:
    """The objects, by name, and what was asked of them."""

    def __init__(self) -> None:
        self.address = ""
        self.node_uid = NODE_UID
        self.slices: dict[str, dict[str, Any]] = {}
        #: ResourceClaims, by namespace/name.
        self.claims: dict[str, dict[str, Any]] = {}
        #: Each write that was asked for: method and name, with the time (monotonic seconds).
        self.writes: list[tuple[str, str]] = []
        self.moments: list[float] = []
        self.requests: list[str] = []
        #: What a request gets instead of an answer: method and path to a code; None to go on.
        self.refuse: Callable[[str, str], int | None] = lambda _method, _path: None
        #: The header Retry-After of refusals; empty for none.
        self.retry_after = ""
        #: What becomes of the content of an answer to a method, or of an event (WATCH), before it is sent.
        self.spoil: Callable[[str, Any], Any] = lambda _method, content: content
        #: What becomes of an object before it is stored.
        self.admit: Callable[[dict[str, Any]], None] = lambda _object: None
        #: Called after an object was stored, before the answer.
        self.stored: Callable[[str], None] = lambda _name: None
        self.version = 100
        self.oldest = 0
        self.history: list[tuple[int, dict[str, Any]]] = []
        self.news = threading.Condition(threading.RLock())
        self.watches = 0
        #: Seconds before a watch tells of a change.
        self.delay = 0.0
        #: Whether watches tell nothing, as on a connection that nobody knows to be dead.
        self.is_mute = False
        #: Ends all watches once it is another number.
        self.era = 0

    def connect(self) -> Api:
        return Api(Access(self.address, ssl.create_default_context(), {}, ""))

    def put(self, method: str, given: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """Store an object; returns the code and the content of the answer."""
        with self.news:
            name = given["metadata"]["name"]
            old = self.slices.get(name)
            if method == "POST" and old is not None:
                return 409, status(409, f'resourceslices.resource.k8s.io "{name}" already exists')
            if method == "PUT" and old is None:
                return 404, status(404, f'resourceslices.resource.k8s.io "{name}" not found')
            if old is not None and given["metadata"].get("resourceVersion") != old["metadata"]["resourceVersion"]:
                return 409, status(409, "the object has been modified")
            new = self.admitted(given)
            unchanged = old is not None and new["spec"] == old["spec"] and new["metadata"] == old["metadata"]
            if not unchanged:
                self.version += 1
                uid = old["metadata"]["uid"] if old else f"uid-{self.version}"
                new["metadata"].update(uid=uid, resourceVersion=str(self.version))
                self.slices[name] = new
                self._tell("MODIFIED" if old else "ADDED", new)
        self.stored(name)
        return 200, new

    def admitted(self, given: dict[str, Any]) -> dict[str, Any]:
        """What the server stores of an object."""
        new = copy.deepcopy(given)
        self.admit(new)
        for device in new["spec"].get("devices", ()):
            for taint in device.get("taints", ()):
                # Differs each time.
                taint.setdefault("timeAdded", f"at {time.monotonic()}")
        return new

    def delete(self, *names: str) -> None:
        """Delete objects as another user does; all by default, as a kubelet does when it starts."""
        with self.news:
            for name in names or tuple(self.slices):
                self.version += 1
                gone = self.slices.pop(name)
                gone = {**gone, "metadata": {**gone["metadata"], "resourceVersion": str(self.version)}}
                self._tell("DELETED", gone)

    def compact(self) -> None:
        """Forget the changes, and end all watches."""
        with self.news:
            self.version += 1
            self.oldest = self.version
            self.end_watches()

    def end_watches(self) -> None:
        with self.news:
            self.era += 1
            self.news.notify_all()

    def _tell(self, kind: str, each: dict[str, Any]) -> None:
        self.history.append((self.version, {"type": kind, "object": each}))
        self.news.notify_all()

    def listed(self, selector: str) -> dict[str, Any]:
        with self.news:
            items = [each for each in self.slices.values() if selected(each, selector)]
            return {"kind": "ResourceSliceList", "metadata": {"resourceVersion": str(self.version)}, "items": items}

    def watch(self, after: int, seconds: float, selector: str) -> Iterator[dict[str, Any]]:
        until, era = time.monotonic() + seconds, self.era
        while time.monotonic() < until and self.era == era:
            with self.news:
                found = [each for each in self.history if each[0] > after and selected(each[1]["object"], selector)]
                if not found and self.era == era:
                    self.news.wait(until - time.monotonic())
            for version, event in found:
                time.sleep(self.delay)
                if not self.is_mute:
                    yield event
                after = version


def status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "code": code, "message": message}


def selected(each: dict[str, Any], selector: str) -> bool:
    wanted = dict(part.split("=") for part in selector.split(","))
    return {f"spec.{key}": str(each["spec"][key]) for key in ("driver", "nodeName")} == wanted


class _Handler(http.server.BaseHTTPRequestHandler):
    api: FakeApi

    def _answer(self, code: int, content: dict[str, Any]) -> None:
        self.send_response(code)
        if code >= 400 and self.api.retry_after:
            self.send_header("Retry-After", self.api.retry_after)
        self.end_headers()
        self.wfile.write(json.dumps(self.api.spoil(self.command, copy.deepcopy(content))).encode())
        self.close_connection = True

    def _handle(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(parts.query))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        method = "WATCH" if "watch" in query else self.command
        self.api.requests.append(f"{method} {parts.path}")
        if method in ("POST", "PUT", "DELETE") and "dryRun" not in query:
            name = parts.path.rpartition("/")[2] if method != "POST" else json.loads(body)["metadata"]["name"]
            self.api.writes.append((method, name))
            self.api.moments.append(time.monotonic())
        code = self.api.refuse(method, parts.path)
        if code is not None:
            said = 'User "system:node:w1" cannot update resource "resourceslices"' if code == 403 else "no"
            self._answer(code, status(code, said))
        elif method == "WATCH":
            self._watch(query)
        elif method == "GET" and parts.path.startswith("/api/v1/nodes/"):
            name = parts.path.rpartition("/")[2]
            self._answer(200, {"kind": "Node", "metadata": {"name": name, "uid": self.api.node_uid}})
        elif method == "GET" and "/resourceclaims/" in parts.path:
            namespace, _kinds, name = parts.path.split("/")[-3:]
            found = self.api.claims.get(f"{namespace}/{name}")
            self._answer(404 if found is None else 200, found or status(404, "not found"))
        elif method == "GET":
            self._answer(200, self.api.listed(query["fieldSelector"]))
        elif method == "DELETE":
            self._delete(parts.path.rpartition("/")[2], json.loads(body)["preconditions"]["uid"])
        elif "dryRun" in query:
            self._answer(200, self.api.admitted(json.loads(body)))
        else:
            self._answer(*self.api.put(method, json.loads(body)))

    do_GET = do_POST = do_PUT = do_DELETE = _handle

    def _delete(self, name: str, uid: str) -> None:
        with self.api.news:
            found = self.api.slices.get(name)
            if found is None or found["metadata"]["uid"] != uid:
                self._answer(404 if found is None else 409, status(404, "not found"))
                return
            self.api.delete(name)
        self._answer(200, status(200, ""))

    def _watch(self, query: dict[str, str]) -> None:
        after = int(query["resourceVersion"])
        if after < self.api.oldest:
            self._answer(410, status(410, "too old resource version"))
            return
        self.send_response(200)
        self.end_headers()
        self.api.watches += 1
        with contextlib.suppress(OSError):
            self.wfile.flush()
            for event in self.api.watch(after, float(query["timeoutSeconds"]), query["fieldSelector"]):
                self.wfile.write(json.dumps(self.api.spoil("WATCH", copy.deepcopy(event))).encode() + b"\n")
        self.close_connection = True

    def log_message(self, *_arguments: Any) -> None:
        pass


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


@contextlib.contextmanager
def serving(port: int = 0, fake: FakeApi | None = None) -> Iterator[FakeApi]:
    """Serve an API, on a free port by default."""
    fake = fake or FakeApi()
    server = _Server(("127.0.0.1", port), type("Handler", (_Handler,), {"api": fake}))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    fake.address = "http://127.0.0.1:%d" % server.server_address[1]
    try:
        yield fake
    finally:
        fake.end_watches()
        server.shutdown()
        thread.join()
        server.server_close()
