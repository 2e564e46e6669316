"""Reads, watches, applies (server-side), replaces, patches, evicts and deletes the objects of a cluster."""

from __future__ import annotations

import contextlib
import copy
import datetime
import email.utils
import http.client
import json
import re
import socket
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator
from typing import Any, Callable, NamedTuple, TypeVar

from . import kubeconfig
from .kubeconfig import Access
from .proxy import Proxy, ProxyError, proxy_for
from .transport import TookTooLong, TooLarge, Transport

_JSON = "application/json"
#: Our field manager name in managedFields.
FIELD_MANAGER = "nodedevices"
# If the server refuses an eviction for one of these reasons, the eviction may succeed later.
_MAY_PASS = ("DisruptionBudget", "NamespaceTerminating")
# Timeout in seconds for the connection to the API server, and for each piece of its answer.
_TIMEOUT = 15.0
# Timeouts in seconds for a whole answer and for a whole list.
_WHOLE = 60.0
_LIST = 300.0
# Objects on a page of a list, as in kubectl.
_PAGE = 500
# Maximum bytes of an answer, of a list, of an event, and of a pod's answer or log. A page of large objects may exceed
# ten MB. The answer or log of a pod comes through a node, which may be hostile.
_LARGEST = 128 << 20
_LARGEST_LIST = 512 << 20
_LARGEST_EVENT = 16 << 20
_LARGEST_OF_POD = 16 << 20
# Attempts to change an object that others may change between our read and our write, and seconds between two attempts.
_ATTEMPTS = 5
_PAUSE = 0.5
# Maximum seconds of retries, if the server sends Retry-After.
_COME_AGAIN = 20.0
# The status codes of a server that starts, stops or is overloaded, and of a proxy that does not reach its server.
_NOT_READY = (429, 502, 503, 504)
# Prefixes of a 500's message if etcd or the connection to etcd failed. Kubernetes 1.36.2 answered a write without etcd
# quorum with "rpc error: code = Unknown desc = context deadline exceeded". etcd's own errors begin with "etcdserver: ".
_OF_ETCD = ("rpc error: ", "etcdserver: ")
# Matches an authorizer's message (responsewriters.ForbiddenMessage). Quotas, Pod Security and webhooks also answer 403.
# A missing right to impersonate does not match, because this right is not the right for the request.
_LACKS_RIGHTS = re.compile(r'\bUser ".*" cannot (?!impersonate )', re.DOTALL)
# OpenSSL's names of the TLS alerts with which a server refuses a client's certificate.
_CERTIFICATE_REFUSED = re.compile(r"ALERT_(?:.*CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED)")


_Changed = TypeVar("_Changed")


class ApiError(Exception):
    """The API server refused a request or does not answer; the message says how to fix the problem."""


class Unavailable(ApiError):
    """No API server answers, or the answering server is not ready.

    pause: minimum seconds until a retry, as the server asks for by Retry-After; 0 if it does not.
    """

    def __init__(self, message: str, pause: float = 0.0) -> None:
        super().__init__(message)
        self.pause = pause


class Conflict(ApiError):
    """The request conflicts with the object's current state (409), or its content is invalid (422)."""


class AlreadyExists(Conflict):
    """Another object has the name of the object to create."""


class NotFound(ApiError):
    """The object, namespace or kind does not exist."""


class LacksRights(ApiError):
    """The user has no right for the request; the message names the missing right."""


class Expired(ApiError):
    """The server no longer has the remaining pages of a list, or the changes since a version (410)."""


class Blocked(ApiError):
    """The server refuses an eviction now, but may allow the eviction later."""


class Place(NamedTuple):
    """An object's address in the API, or the address of all objects of a kind.

    kinds: the kind's plural, or a discovery path, which begins with a slash. name: the object's; empty for all objects.
    namespace: empty for a kind without namespaces. group: with its version, such as ``apps/v1``; empty for the core
    group. part: a subresource, optionally with a path below it.
    """

    kinds: str
    name: str = ""
    namespace: str = ""
    group: str = ""
    part: str = ""

    @property
    def path(self) -> str:
        """The path of this place's URL."""
        if self.kinds.startswith("/"):
            return self.kinds
        parts = ["apis", *self.group.split("/")] if self.group else ["api", "v1"]
        parts += ["namespaces", self.namespace] if self.namespace else []
        parts += [each for each in (self.kinds, self.name) if each]
        return (
            "/"
            + "/".join(urllib.parse.quote(each, safe=":") for each in parts)
            + (f"/{self.part}" if self.part else "")
        )

    @property
    def resource(self) -> str:
        """This place's resource, as the rules of a role name it."""
        group = self.group.partition("/")[0]
        return self.kinds + (f".{group}" if group else "") + (f"/{self.part.partition('/')[0]}" if self.part else "")

    @property
    def role(self) -> str:
        """The kind of role that grants rights to this place."""
        return f"Role of namespace {self.namespace}" if self.namespace else "ClusterRole"

    def __str__(self) -> str:
        if self.kinds.endswith("ies"):
            one = self.kinds.removesuffix("ies") + "y"
        else:
            one = self.kinds.removesuffix("es" if self.kinds.endswith("sses") else "s")
        kind = one if self.name else self.kinds
        return " ".join(each for each in (kind, self.name, self.namespace and f"in namespace {self.namespace}") if each)


class Listed(NamedTuple):
    """All objects of a kind. version: where a ``watch`` of their changes begins."""

    objects: list[dict[str, Any]]
    version: str


class Event(NamedTuple):
    """A change of an object. kind: ADDED, MODIFIED or DELETED; or BOOKMARK, whose object has only a later version."""

    kind: str
    object: dict[str, Any]


class Api:
    """A client of a cluster's API server. Raises ApiError if its address or its proxy is unusable.

    dry_run: the server checks each write and stores nothing.
    """

    def __init__(self, access: Access, dry_run: bool = False) -> None:
        self._access = access
        self._patience = _COME_AGAIN
        self._whole: float | None = _WHOLE
        self._accept = _JSON
        self.dry_run = dry_run
        try:
            url = access.proxy or proxy_for(access.server, urllib.request.getproxies_environment())
            proxy = Proxy(url) if url else None
            # Messages name the proxy, because either the proxy or the server may be silent.
            self._way = f" through the proxy {proxy.at}" if proxy else ""
        except ProxyError as error:
            raise ApiError(f"cannot use the proxy for the API server {access.server}: {error}") from error
        except ValueError as error:
            raise self._no_address(error) from error
        self._transport = Transport(access.tls, proxy)

    @classmethod
    def of(cls, path: str, dry_run: bool = False) -> Api:
        """A client of a kubeconfig's cluster. Raises ApiError, also for an unusable kubeconfig."""
        try:
            return cls(kubeconfig.read(path), dry_run)
        except kubeconfig.KubeconfigError as error:
            raise ApiError(str(error)) from error

    def dry(self) -> Api:
        """This client with dry runs only."""
        client = copy.copy(self)
        client.dry_run = True
        return client

    def impatient(self) -> Api:
        """This client without retries, for a caller that waits itself as ``Unavailable.pause`` says."""
        client = copy.copy(self)
        client._patience = 0.0
        return client

    def unlimited(self) -> Api:
        """This client without a limit for a whole answer, for a caller in a thread for which nobody waits too long.

        Each request then needs no thread of its own.
        """
        client = copy.copy(self)
        client._whole = None
        return client

    def node(self, name: str) -> dict[str, Any]:
        """A node object. Raises ApiError if the request fails; NotFound if the cluster has no such node."""
        found = self.get(Place("nodes", name))
        if found is None:
            raise NotFound(
                f"the cluster has no node {name}: set node_devices_node_name to its name there, or join the node first"
            )
        return found

    def patch_node_status(self, name: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
        """Change a node's status and annotations in one step.

        operations: of a JSON patch (RFC 6902).
        Returns the patched node object. Raises ApiError; Conflict if a test of the patch fails.
        """
        return self._patched(Place("nodes", name, part="status"), operations)

    def patch_node(self, name: str, operations: list[dict[str, Any]]) -> dict[str, Any]:
        """Change a node object except its status, as ``patch_node_status`` does."""
        return self._patched(Place("nodes", name), operations)

    def _patched(self, place: Place, operations: list[dict[str, Any]]) -> dict[str, Any]:
        return self._object("PATCH", place, self._changing(), operations, "application/json-patch+json")

    def get(self, place: Place) -> dict[str, Any] | None:
        """An object; None if it does not exist. Raises ApiError."""
        try:
            return self._object("GET", place, {})
        except NotFound:
            return None

    def kinds_of_namespaces(self, but: Collection[str] = ()) -> list[Place]:
        """Every listable namespaced kind, without duplicates, from the API server's discovery.

        but: groups to omit. Raises ApiError, even if only one group's server does not answer.
        """
        versions = [("", "")]
        for group in self._discovered("/apis")["groups"]:
            # Another version may serve a kind that the preferred version does not serve.
            served = [group["preferredVersion"], *group["versions"]]
            versions += [(group["name"], each["groupVersion"]) for each in served if group["name"] not in but]
        found: dict[tuple[str, str], Place] = {}
        for name, version in versions:
            for each in self._discovered(f"/apis/{version}" if version else "/api/v1")["resources"]:
                if each["namespaced"] and "list" in each["verbs"] and "/" not in each["name"]:
                    found.setdefault((name, each["name"]), Place(each["name"], group=version))
        return list(found.values())

    def _discovered(self, path: str) -> dict[str, Any]:
        answer = self._object("GET", Place(path), {})
        if not isinstance(answer.get("groups") or answer.get("resources"), list):
            raise self.no_api_server(Place(path), "check the kubeconfig's server")
        return answer

    def list(self, place: Place, **selectors: str) -> list[dict[str, Any]]:
        """All objects of a kind, read in pages. selectors: labelSelector, fieldSelector. Raises ApiError."""
        return self.listed(place, **selectors).objects

    def names(self, place: Place) -> set[str]:
        """The names of all objects of a kind. The server sends only their metadata. Raises ApiError."""
        client = copy.copy(self)
        client._accept = f"application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{_JSON}"
        return {each["metadata"]["name"] for each in client.list(place)}

    def listed(self, place: Place, **selectors: str) -> Listed:
        """All objects of a kind, as in ``list``, with the version of the list."""
        found: list[dict[str, Any]] = []
        query = {**selectors, "limit": str(_PAGE)}
        until, left = time.monotonic() + _LIST, _LARGEST_LIST
        while True:
            try:
                content = self._ask("GET", place, query, None, "", min(left, _LARGEST))
            except Expired:
                # etcd has compacted the rest of the list, so read the whole list again unpaged, as client-go does.
                if "limit" not in query:
                    raise
                found, query = [], dict(selectors)
                continue
            left -= len(content)
            answer = self._parsed(content, place)
            items, metadata = answer.get("items") or [], answer.get("metadata") or {}
            if not (isinstance(metadata, dict) and isinstance(items, list) and all(map(_is_object, items))):
                raise self.no_api_server(place, "it is no list of objects")
            found += items
            more = metadata.get("continue")
            if not more:
                return Listed(found, str(metadata.get("resourceVersion") or ""))
            if time.monotonic() > until:
                raise ApiError(f"the API server {self._access.server} needs more than {_LIST:g} s to list {place}")
            query["continue"] = str(more)

    def watch(self, place: Place, version: str, seconds: int, **selectors: str) -> Iterator[Event]:
        """Yield each change of a kind's objects since ``version``, until ``seconds`` have passed or the server ends.

        The caller may then watch again from the last event's version. selectors: as in ``list``. Raises ApiError;
        Expired if the server no longer has the changes since this version, so that the caller must list again.
        """
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(seconds), **selectors}
        address = self._address(place, {**query, "resourceVersion": version})
        try:
            for line in self._transport.lines(
                address, self._headers(), begins=_TIMEOUT, seconds=seconds, limit=_LARGEST_EVENT
            ):
                yield self._event(line, place)
        except (OSError, http.client.HTTPException) as error:
            raise self._failure(error, "WATCH", place) from error

    def _event(self, line: bytes, place: Place) -> Event:
        try:
            data = json.loads(line)
            event = Event(data["type"], dict(data["object"]))
        except (RecursionError, TypeError, ValueError, KeyError) as error:
            raise self.no_api_server(place, repr(error)) from error
        if event.kind == "ERROR":
            said = event.object.get("message")
            if event.object.get("code") == 410:
                raise _expired("WATCH", place, said)
            raise Unavailable(f"the API server {self._access.server} ended the watch of {place}: {said}: watch again")
        return event

    def apply(self, place: Place, content: dict[str, Any]) -> dict[str, Any]:
        """Apply ``content`` to an object by server-side apply. Fields that only other managers own do not change.

        Returns the applied object. Raises ApiError; NotFound if its namespace or kind does not exist.
        """
        # Force, because the declaration overrides a field that another manager has set.
        query = {**self._changing(), "force": "true"}
        return self._object("PATCH", place, query, content, "application/apply-patch+yaml")

    def merge(self, place: Place, content: dict[str, Any]) -> dict[str, Any]:
        """Change fields by a merge patch (RFC 7386); null removes a field. Raises ApiError, NotFound."""
        return self._object("PATCH", place, self._changing(), content, "application/merge-patch+json")

    def replace(self, place: Place, content: dict[str, Any]) -> dict[str, Any]:
        """Replace an object. content: with the resourceVersion of the object that it replaces.

        Raises ApiError; Conflict if the object has another version now; NotFound if it does not exist.
        """
        return self._object("PUT", place, self._changing(), content, "application/json")

    def create(self, place: Place, content: dict[str, Any]) -> dict[str, Any]:
        """Create an object. place: its kind and namespace. Raises ApiError; Conflict if the object already exists."""
        return self._object("POST", place, self._changing(), content, "application/json")

    def delete(self, place: Place, uid: str) -> bool:
        """Delete an object and its dependents; False if the object does not exist.

        uid: of the object to delete. Raises ApiError; Conflict if another object has the same name now.
        """
        content: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if self.dry_run:
            # The server ignores dryRun in the URL if the request has a body.
            content["dryRun"] = ["All"]
        try:
            self._object("DELETE", place, {}, content, "application/json")
        except NotFound:
            return False
        return True

    def evict(self, pod: dict[str, Any]) -> None:
        """Evict a pod if its PodDisruptionBudgets allow the eviction.

        pod: the pod object; a newer pod of the same name stays.
        Raises ApiError; Blocked if a PodDisruptionBudget forbids the eviction now; NotFound if the pod is gone.
        """
        metadata = pod["metadata"]
        content = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
            "deleteOptions": {"preconditions": {"uid": metadata["uid"]}},
        }
        place = Place("pods", metadata["name"], metadata["namespace"], part="eviction")
        self._object("POST", place, self._changing(), content, "application/json")

    def moment(self) -> datetime.datetime | None:
        """The server's time of its last answer, to compare with the times of objects; None if it sends no time.

        This machine's clock may differ from the server's clock.
        """
        try:
            found = email.utils.parsedate_to_datetime(self._transport.date)
        except (IndexError, OverflowError, TypeError, ValueError):
            return None
        return found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)

    def text(self, place: Place) -> str:
        """A pod's HTTP answer (``place.part`` is proxy and a path) or its log (``log``). Raises ApiError."""
        return self._ask("GET", place, {}, None, "").decode(errors="replace")

    def _changing(self) -> dict[str, str]:
        return {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if self.dry_run else {})}

    def _object(
        self, method: str, place: Place, query: dict[str, str], content: Any = None, kind: str = ""
    ) -> dict[str, Any]:
        return self._parsed(self._ask(method, place, query, content, kind), place)

    def _parsed(self, answer: bytes, place: Place) -> dict[str, Any]:
        try:
            data = json.loads(answer)
        except (RecursionError, ValueError) as error:
            raise self.no_api_server(place, error) from error
        if not isinstance(data, dict) or "kind" not in data:
            raise ApiError(f"{self._access.server}{place.path} does not answer as an API server")
        return data

    def no_api_server(self, place: Place, why: object) -> ApiError:
        """The error for an answer without what an API server always answers. why: what is wrong there."""
        return ApiError(f"{self._access.server}{place.path} does not answer as an API server: {why}")

    def _address(self, place: Place, query: dict[str, str]) -> str:
        return f"{self._access.server}{place.path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")

    def _headers(self) -> dict[str, str]:
        return {**self._access.headers, "Accept": self._accept, "User-Agent": FIELD_MANAGER}

    def _ask(self, method: str, place: Place, query: dict[str, str], content: Any, kind: str, limit: int = 0) -> bytes:
        """The content of the answer. limit: maximum bytes of the answer; 0 for the place's default. Raises ApiError."""
        headers, body = self._headers(), None
        if content is not None:
            body = json.dumps(content).encode()
            headers["Content-Type"] = kind
        address, deadline = self._address(place, query), time.monotonic() + self._patience
        limit = limit or (_LARGEST_OF_POD if place.part.startswith(("proxy", "log")) else _LARGEST)
        while True:
            try:
                return self._transport.ask(
                    method, address, body, headers, read_timeout=_TIMEOUT, seconds=self._whole, limit=limit
                )
            except (OSError, http.client.HTTPException) as error:
                # While the server is overloaded or shuts down, try again, as client-go does. Do not wait to retry an
                # eviction, because the caller continues with other pods.
                pause = _come_again(error)
                if pause is None or place.part == "eviction" or time.monotonic() + pause > deadline:
                    raise self._failure(error, method, place) from error
                time.sleep(pause)

    def _failure(self, error: Exception, method: str, place: Place) -> ApiError:
        """What a request that failed means."""
        if isinstance(error, urllib.error.HTTPError):
            return self._refusal(error, method, place)
        if isinstance(error, http.client.InvalidURL):
            return self._no_address(error)
        refused = _refused_certificate(error)
        if refused:
            return self._unknown_user(refused)
        if isinstance(error, TooLarge) or (isinstance(error, TookTooLong) and place.part.startswith("proxy")):
            return ApiError(f"cannot read {place}: {error}")
        if place.part.startswith("proxy") and isinstance(error, socket.timeout):
            # The API server waits longer for the pod than our timeout (30 s for the connection alone).
            return ApiError(
                f"{place} did not answer through the API server in {_TIMEOUT:g} s: check whether a firewall or a "
                f"network policy blocks the pod's port"
            )
        text = f"the API server {self._access.server} does not answer{self._way}: {_reason(error)}"
        if isinstance(error, ssl.SSLCertVerificationError):
            return ApiError(text)
        return Unavailable(f"{text}: retry when the API server answers")

    def _no_address(self, error: Exception) -> ApiError:
        return ApiError(f"the kubeconfig's server {self._access.server!r} is not a valid URL: {error}")

    def _unknown_user(self, said: str) -> ApiError:
        return ApiError(
            f"the API server {self._access.server} does not accept {self._access.credentials}: {said}: give its user a "
            f"valid certificate, token or exec in {self._access.path}"
        )

    def _refusal(self, error: urllib.error.HTTPError, method: str, place: Place) -> ApiError:
        said, causes, is_api_servers = _status(error)
        if place.part.startswith("proxy") and not is_api_servers:
            # The pod's own answer says nothing about our rights or credentials, whatever its status code.
            return ApiError(f"the answer {error.code} for {place} is not from the API server: {said}")
        budgets = [each["message"] for each in causes if each.get("reason") in _MAY_PASS and each.get("message")]
        if place.part == "eviction" and budgets:
            return Blocked(", ".join(budgets))
        if 300 <= error.code < 400:
            elsewhere = error.headers.get("Location")
            return ApiError(
                f"{self._access.server} is not an API server: it redirects to {elsewhere}; check the kubeconfig"
            )
        if error.code == 401:
            return self._unknown_user(said)
        if error.code == 403 and is_api_servers and _LACKS_RIGHTS.search(said):
            verbs = {"GET": "get" if place.name else "list", "POST": "create", "PUT": "update"}
            verb = verbs.get(method, method.lower())
            return LacksRights(f"{said}: give this user {verb} on {place.resource} in a {place.role}")
        if error.code == 404 and (is_api_servers or place.group):
            # For an unknown group, even an API server answers in plain text.
            return NotFound(f"the cluster has no {place}: {said}")
        if error.code == 410:
            return _expired(method, place, said)
        if error.code in (409, 422):
            kind = AlreadyExists if (error.code, method, place.part) == (409, "POST", "") else Conflict
            what = {"POST": "to create", "DELETE": "to delete", "PUT": "to replace"}.get(method, "the patch of")
            return kind(f"the API server refused {what} {place}: {said}")
        if error.code == 404:
            return self.no_api_server(place, said)
        text = f"the API server {self._access.server} answered {error.code} to {method} of {place}: {said}"
        is_without_etcd = error.code == 500 and is_api_servers and said.startswith(_OF_ETCD)
        if error.code in _NOT_READY or is_without_etcd:
            return Unavailable(f"{text}: retry when the API server is ready", _come_again(error) or 0.0)
        return ApiError(text)


def again_after_conflict(change: Callable[[], _Changed]) -> _Changed:
    """The result of ``change``, which reads an object and writes it. After a Conflict, it is called again, a few times.

    Raises the errors of ``change``.
    """
    for _attempt in range(_ATTEMPTS - 1):
        with contextlib.suppress(Conflict):
            return change()
        time.sleep(_PAUSE)
    return change()


def _expired(method: str, place: Place, said: object) -> Expired:
    what = "the changes of" if method == "WATCH" else "the rest of the list of"
    return Expired(f"the API server no longer has {what} {place}: {said}")


def _come_again(error: Exception) -> float | None:
    """The seconds to wait before the retry that a refusal requests; None if it requests no retry."""
    if not isinstance(error, urllib.error.HTTPError):
        return None
    text = error.headers.get("Retry-After") or ""
    # HTTP also allows a date here, but Kubernetes never sends one.
    return max(1.0, float(text)) if error.code in _NOT_READY and text.isascii() and text.isdigit() else None


def _status(error: urllib.error.HTTPError) -> tuple[str, list[dict[str, Any]], bool]:
    """The message of a refusal, its causes, and whether an API server sent it.

    A proxy in front of the server, or a pod behind it, answers in another format.
    """
    content = error.read()
    try:
        status = json.loads(content)
        is_api_servers = status.get("kind") == "Status"
        causes = (status.get("details") or {}).get("causes") or ()
        return str(status["message"]), list(filter(_is_object, causes)), is_api_servers
    except (RecursionError, ValueError, KeyError, TypeError, AttributeError):
        text = " ".join(content.decode(errors="replace").split())
        # The HTTP reason is more useful than an HTML page.
        return str(error.reason) if not text or text.startswith("<") else text[:200], [], False


def _is_object(data: Any) -> bool:
    return isinstance(data, dict)


def _refused_certificate(error: Exception) -> str:
    """Why the server refused the client's certificate; empty for any other error."""
    name = error.reason if isinstance(error, ssl.SSLError) and isinstance(error.reason, str) else ""
    found = _CERTIFICATE_REFUSED.search(name)
    return name.partition("ALERT_")[2].replace("_", " ").lower() if found else ""


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the server's certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__
