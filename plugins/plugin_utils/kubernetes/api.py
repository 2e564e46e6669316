# SPDX-License-Identifier: Apache-2.0
"""A node object, read and patched."""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from .kubeconfig import Access

#: Who changed a field, in managedFields.
FIELD_MANAGER = "nodedevices"
# Seconds that the API server may take to connect, and then for each piece of its answer.
_PATIENCE = 15.0


class ApiError(Exception):
    """What the API server refused, or that it does not answer; the message says what to do."""


class Changed(ApiError):
    """A patch does not fit the object any more."""


class Api:
    """A cluster's API server."""

    def __init__(self, access: Access) -> None:
        self._access = access
        proxies = {"http": access.proxy, "https": access.proxy} if access.proxy else None
        self._opener = urllib.request.build_opener(
            urllib.request.ProxyHandler(proxies), urllib.request.HTTPSHandler(context=access.tls)
        )

    def node(self, name: str) -> dict[str, Any]:
        """A node object. Raises ApiError."""
        return self._ask("GET", name, "", {})

    def patch_node_status(self, name: str, operations: list[dict[str, Any]], dry_run: bool = False) -> dict[str, Any]:
        """Change a node's status and annotations in one step.

        operations: of a JSON patch (RFC 6902).
        dry_run: the server goes through all of it, and keeps nothing.
        Returns the node object as it is then. Raises ApiError; Changed where the node is not as the patch expects.
        """
        query = {"fieldManager": FIELD_MANAGER, **({"dryRun": "All"} if dry_run else {})}
        return self._ask("PATCH", name, "/status", query, operations)

    def _ask(self, method: str, node: str, part: str, query: dict[str, str], operations: Any = None) -> dict[str, Any]:
        path = f"/api/v1/nodes/{urllib.parse.quote(node, safe='')}{part}"
        address = f"{self._access.server}{path}" + (f"?{urllib.parse.urlencode(query)}" if query else "")
        headers = {**self._access.headers, "Accept": "application/json", "User-Agent": FIELD_MANAGER}
        content = None
        if operations is not None:
            content = json.dumps(operations).encode()
            headers["Content-Type"] = "application/json-patch+json"
        request = urllib.request.Request(address, content, headers, method=method)
        try:
            with self._opener.open(request, timeout=_PATIENCE) as answer:
                data = json.loads(answer.read())
        except urllib.error.HTTPError as error:
            raise self._refusal(error, method, node, part) from error
        except (OSError, http.client.HTTPException) as error:
            raise ApiError(f"the API server {self._access.server} does not answer: {_reason(error)}") from error
        except ValueError as error:
            raise ApiError(f"{address} does not answer as an API server: {error}") from error
        if not isinstance(data, dict) or data.get("kind") != "Node":
            raise ApiError(f"{address} does not answer with a node")
        return data

    def _refusal(self, error: urllib.error.HTTPError, method: str, node: str, part: str) -> ApiError:
        said = _message(error)
        if error.code == 401:
            return ApiError(
                f"the API server {self._access.server} does not accept the kubeconfig's credentials: {said}"
            )
        if error.code == 403:
            needed = "patch on nodes/status" if part else "get on nodes"
            return ApiError(f"{said}: give this user {needed} in a ClusterRole")
        if error.code == 404 and method == "GET":
            return ApiError(
                f"the cluster has no node {node}: set node_devices_node_name to its name there, or let it join first"
            )
        if error.code in (409, 422):
            return Changed(f"the API server refused the patch of node {node}: {said}")
        return ApiError(
            f"the API server {self._access.server} answered {error.code} to {method} of node {node}: {said}"
        )


def _message(error: urllib.error.HTTPError) -> str:
    """What a refusal says for people."""
    try:
        content = error.read(65536)
    except (OSError, http.client.HTTPException):
        content = b""
    try:
        return str(json.loads(content)["message"])
    except (ValueError, KeyError, TypeError):
        return content.decode(errors="replace").strip()[:200] or str(error.reason)


def _reason(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {reason.verify_message}"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return str(reason) or type(reason).__name__
