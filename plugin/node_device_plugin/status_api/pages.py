"""The plugin's pages: /metrics, /healthz and /readyz for all clients; /status and the commands only for root."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping
from http import HTTPStatus
from typing import Any, Callable, NamedTuple

from ..declaration import Problem
from ..telemetry.exposition import CONTENT_TYPE
from .http import Page, Response, Routes


class Outcome(NamedTuple):
    """The outcome of a reload.

    result: ``applied``, ``unchanged`` (the plugin already runs with these bytes) or ``refused``.
    problems: why the plugin refused the configuration.
    """

    result: str
    problems: tuple[Problem, ...] = ()


#: Carries out a command to the plugin.
Command = Callable[[], Awaitable[Outcome]]


def public_pages(metrics: Callable[[], str], not_ready: Callable[[], list[str]]) -> Routes:
    """The pages at ``http_address``. A plugin that answers is alive, because the plugin ends if a task fails.

    metrics: returns Prometheus' text. not_ready: returns why the plugin is not ready, as sentences.
    """
    return {
        ("GET", "/metrics"): _shown(lambda: Response(HTTPStatus.OK, metrics(), CONTENT_TYPE)),
        ("GET", "/healthz"): _shown(lambda: _verdict([])),
        ("GET", "/readyz"): _shown(lambda: _verdict(not_ready())),
    }


def private_pages(status: Callable[[], Any], commands: Mapping[str, Command], public: Routes) -> Routes:
    """The unix socket's pages: the public pages and /status, and a page for each command to the plugin, by path."""
    pages = {("POST", path): _carried_out(command) for path, command in commands.items()}
    return {**public, ("GET", "/status"): _shown(lambda: _json(HTTPStatus.OK, status())), **pages}


def _shown(make: Callable[[], Response]) -> Page:
    async def page() -> Response:
        return make()

    return page


def _carried_out(command: Command) -> Page:
    async def page() -> Response:
        outcome = await command()
        status = HTTPStatus.CONFLICT if outcome.result == "refused" else HTTPStatus.OK
        return _json(status, {"result": outcome.result, "problems": [str(problem) for problem in outcome.problems]})

    return page


def _verdict(wrong: list[str]) -> Response:
    if wrong:
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, "".join(sentence + "\n" for sentence in wrong))
    return Response(HTTPStatus.OK, "ok\n")


def _json(status: HTTPStatus, data: Any) -> Response:
    return Response(status, json.dumps(data) + "\n", "application/json")
