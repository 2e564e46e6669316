"""Sends HTTP requests with a limit for the total time and for the answer's size.

A socket's timeout applies to each piece of an answer, so a server that sends a byte a second would never time out.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import queue
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any, Callable

from .proxy import Proxy

#: Maximum bytes to read of a refusal.
_REFUSAL = 65536


class TookTooLong(OSError):
    """The answer did not end in time."""


class TooLarge(OSError):
    """The answer has more bytes than the limit."""


def _start(work: Callable[[], None]) -> None:
    """Run ``work`` in a thread that does not delay the exit. Raises OSError at the process's thread limit."""
    try:
        threading.Thread(target=work, daemon=True).start()
    except RuntimeError as error:
        raise OSError(str(error)) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows no redirect. An API server does not redirect, and any other server must not get the token."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


class Transport:
    """Sends requests to an API server, through a proxy if given."""

    def __init__(self, tls: ssl.SSLContext, proxy: Proxy | None) -> None:
        self._proxy = proxy
        #: The header Date of the last successful answer; empty without one.
        self.date = ""
        self._opener = urllib.request.build_opener(
            # Without an empty handler, Python would apply the environment's proxy by its own rules.
            urllib.request.ProxyHandler({}),
            _NoRedirect(),
            urllib.request.HTTPSHandler(context=tls),
        )

    def ask(
        self, method: str, address: str, body: Any, headers: Any, *, read_timeout: float, seconds: float, limit: int
    ) -> bytes:
        """Send a request; returns the answer's content.

        read_timeout: seconds for each piece of the answer. seconds: for the whole answer. limit: its maximum bytes.
        Raises TookTooLong, TooLarge, and urllib's HTTPError (with its content already read), OSError, HTTPException.
        """
        request = self._request(method, address, body, headers)
        outcomes: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

        def work() -> None:
            try:
                outcomes.put(self._content(request, read_timeout, limit))
            except Exception as error:
                outcomes.put(error)

        # Use a thread, because nothing can interrupt name resolution, a proxy or TLS from outside. A late thread stays
        # until its server times out or the process ends.
        _start(work)
        try:
            outcome = outcomes.get(timeout=seconds)
        except queue.Empty:
            raise TookTooLong(f"the answer was not complete after {seconds:g} s") from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def lines(self, address: str, headers: Any, *, begins: float, seconds: float, limit: int) -> Iterator[bytes]:
        """Send a GET request, and yield each line of the answer when it arrives, until ``seconds`` have passed.

        begins: maximum seconds until the answer begins. limit: maximum bytes of a line. Raises the errors of ``ask``.
        """
        request = self._request("GET", address, None, headers)
        # With room for one line, a server that sends faster than the caller reads must wait.
        arrived: queue.Queue[bytes | Exception | None] = queue.Queue(1)
        is_over = threading.Event()

        def work() -> None:
            try:
                with self._answer(request, begins + seconds) as answer:
                    line = b""
                    while not is_over.is_set():
                        arrived.put(line)
                        line = answer.readline(limit + 1)
                        if len(line) > limit:
                            raise TooLarge("a line of the answer has more than %d MiB" % (limit >> 20))
                        if not line.endswith(b"\n"):
                            arrived.put(http.client.IncompleteRead(line) if line else None)
                            return
            except Exception as error:
                arrived.put(error)

        _start(work)
        until = time.monotonic() + begins
        has_begun = False
        try:
            while True:
                try:
                    line = arrived.get(timeout=max(0.0, until - time.monotonic()))
                except queue.Empty:
                    if has_begun:
                        return
                    raise TookTooLong(f"the answer did not begin in {begins:g} s") from None
                if line is None:
                    return
                if isinstance(line, Exception):
                    raise line
                if has_begun:
                    yield line
                else:
                    has_begun, until = True, time.monotonic() + seconds
        finally:
            # The thread may wait for room; after that, it ends.
            is_over.set()
            with contextlib.suppress(queue.Empty):
                arrived.get_nowait()

    def _request(self, method: str, address: str, body: Any, headers: Any) -> urllib.request.Request:
        request = urllib.request.Request(address, body, headers, method=method)  # noqa: S310 (a kubeconfig has no other)
        if self._proxy:
            self._proxy.lead(request)
        return request

    def _content(self, request: urllib.request.Request, read_timeout: float, limit: int) -> bytes:
        with self._answer(request, read_timeout) as answer:
            content: bytes = answer.read(limit + 1)
            if len(content) > limit:
                raise TooLarge("the answer has more than %d MiB" % (limit >> 20))
            if answer.length:
                raise http.client.IncompleteRead(content, answer.length)
            self.date = answer.headers.get("Date") or ""
            return content

    @contextlib.contextmanager
    def _answer(self, request: urllib.request.Request, read_timeout: float) -> Iterator[http.client.HTTPResponse]:
        try:
            answer = self._opener.open(request, timeout=read_timeout)
        except urllib.error.HTTPError as error:
            try:
                said = error.read(_REFUSAL)
            except (OSError, http.client.HTTPException):
                said = b""
            raise urllib.error.HTTPError(
                error.url, error.code, str(error.reason), error.headers, io.BytesIO(said)
            ) from None
        with answer:
            yield answer
