"""The plugin's pages: /metrics, /healthz and /readyz for all clients; /status and the commands only for root."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from http import HTTPStatus
from typing import Any, Callable, NamedTuple

from ..declaration import Problem
from ..telemetry.exposition import CONTENT_TYPE
from .http import Response, Routes


class Outcome(NamedTuple):
    """The outcome of a reload.

    result: ``applied``, ``unchanged`` (the plugin already runs with these bytes) or ``refused``.
    problems: why the plugin refused the configuration.
    """

    result: str
    problems: tuple[Problem, ...] = ()


def public_pages(metrics: Callable[[], str], not_ready: Callable[[], list[str]]) -> Routes:
    """The pages at ``http_address``. A plugin that answers is alive, because the plugin ends if a task fails.

    metrics: returns Prometheus' text. not_ready: returns why the plugin is not ready, as sentences.
    """

    async def show_metrics() -> Response:
        return Response(HTTPStatus.OK, metrics(), CONTENT_TYPE)

    async def healthz() -> Response:
        return _verdict([])

    async def readyz() -> Response:
        return _verdict(not_ready())

    return {("GET", "/metrics"): show_metrics, ("GET", "/healthz"): healthz, ("GET", "/readyz"): readyz}


def private_pages(
    status: Callable[[], Any],
    reload: Callable[[], Awaitable[Outcome]],
    withdraw: Callable[[], Awaitable[Outcome]],
    forget: Callable[[], Awaitable[Outcome]],
    public: Routes,
) -> Routes:
    """The unix socket's pages: the public pages and /status, and a page for each command to the plugin."""

    async def show() -> Response:
        return _json(HTTPStatus.OK, status())

    def answer(outcome: Outcome) -> Response:
        problems = [str(problem) for problem in outcome.problems]
        refused = outcome.result == "refused"
        return _json(
            HTTPStatus.CONFLICT if refused else HTTPStatus.OK, {"result": outcome.result, "problems": problems}
        )

    def page(command: Callable[[], Awaitable[Outcome]]) -> Callable[[], Awaitable[Response]]:
        async def carry_out() -> Response:
            return answer(await command())

        return carry_out

    commands = {"/reload": reload, "/withdraw": withdraw, "/forget": forget}
    pages = {("POST", path): page(command) for path, command in commands.items()}
    return {**public, ("GET", "/status"): show, **pages}


def _verdict(wrong: list[str]) -> Response:
    if wrong:
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, "".join(sentence + "\n" for sentence in wrong))
    return Response(HTTPStatus.OK, "ok\n")


def _json(status: HTTPStatus, data: Any) -> Response:
    return Response(status, json.dumps(data) + "\n", "application/json")
