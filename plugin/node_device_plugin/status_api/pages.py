"""The plugin's pages: /metrics, /healthz and /readyz for everybody, /status and /reload for its own node."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any, Callable, List

from ..telemetry.exposition import CONTENT_TYPE
from .http import Response, Routes
from .state import Reloads, State


def public_pages(state: State, is_alive: Callable[[], bool]) -> Routes:
    """What is served at ``http_address``. is_alive: whether every task of the plugin runs."""

    async def metrics() -> Response:
        return Response(HTTPStatus.OK, state.metrics(), CONTENT_TYPE)

    async def healthz() -> Response:
        return _verdict([] if is_alive() else ["a task of the plugin has ended"])

    async def readyz() -> Response:
        return _verdict(state.not_ready())

    return {("GET", "/metrics"): metrics, ("GET", "/healthz"): healthz, ("GET", "/readyz"): readyz}


def private_pages(state: State, reloads: Reloads, public: Routes) -> Routes:
    """What is served on the unix socket: beside the public pages, one that names devices and files, and the reload."""

    async def status() -> Response:
        return _json(HTTPStatus.OK, state.as_data())

    async def reload() -> Response:
        outcome = await reloads.reload()
        problems = [str(problem) for problem in outcome.problems]
        refused = outcome.result == "refused"
        return _json(
            HTTPStatus.CONFLICT if refused else HTTPStatus.OK, {"result": outcome.result, "problems": problems}
        )

    return {**public, ("GET", "/status"): status, ("POST", "/reload"): reload}


def _verdict(wrong: List[str]) -> Response:
    if wrong:
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, "".join(sentence + "\n" for sentence in wrong))
    return Response(HTTPStatus.OK, "ok\n")


def _json(status: HTTPStatus, data: Any) -> Response:
    return Response(status, json.dumps(data) + "\n", "application/json")
