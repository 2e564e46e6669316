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
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Callable, NamedTuple

from ..support import threads
from .proxy import Proxy

#: Maximum bytes to read of a refusal.
_REFUSAL = 65536


class TookTooLong(OSError):
    """The answer did not end in time."""


class TooLarge(OSError):
    """The answer has more bytes than the limit."""


class _Request(NamedTuple):
    """A request. address: its URL."""

    method: str
    address: str
    body: bytes | None
    headers: Mapping[str, str]


def _start(work: Callable[[], None]) -> None:
    """Run ``work`` in a thread. Raises OSError at the process's thread limit."""
    try:
        threads.start(work)
    except RuntimeError as error:
        raise OSError(str(error)) from error


class Transport:
    """Sends requests to an API server, through a proxy if given.

    It follows no redirect: an API server does not redirect, and any other server must not get the token. A connection
    is used again for later GET requests, which may be repeated if the server has closed the connection meanwhile.
    """

    def __init__(self, tls: ssl.SSLContext, proxy: Proxy | None) -> None:
        self._tls, self._proxy = tls, proxy
        #: The header Date of the last successful answer; empty without one.
        self.date = ""
        #: Open connections that no request uses now.
        self._idle: list[http.client.HTTPConnection] = []

    def __del__(self) -> None:
        for connection in self._idle:
            connection.close()

    def ask(
        self,
        method: str,
        address: str,
        body: bytes | None,
        headers: Mapping[str, str],
        *,
        read_timeout: float,
        seconds: float | None,
        limit: int,
    ) -> bytes:
        """Send a request; returns the answer's content.

        read_timeout: seconds for each piece of the answer. seconds: for the whole answer; None for a caller that does
        not wait longer than it wants, which saves a thread. limit: maximum bytes of the answer.
        Raises TookTooLong, TooLarge, and urllib's HTTPError (with its content already read), OSError, HTTPException.
        """
        request = _Request(method, address, body, headers)
        if seconds is None:
            return self._content(request, read_timeout, limit)
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

    def lines(
        self, address: str, headers: Mapping[str, str], *, begins: float, seconds: float, limit: int
    ) -> Iterator[bytes]:
        """Send a GET request, and yield each line of the answer when it arrives, until ``seconds`` have passed.

        begins: maximum seconds until the answer begins. limit: maximum bytes of a line. Raises the errors of ``ask``.
        """
        request = _Request("GET", address, None, headers)
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

    def _content(self, request: _Request, read_timeout: float, limit: int) -> bytes:
        with self._answer(request, read_timeout) as answer:
            content: bytes = answer.read(limit + 1)
            if len(content) > limit:
                raise TooLarge("the answer has more than %d MiB" % (limit >> 20))
            if answer.length:
                raise http.client.IncompleteRead(content, answer.length)
            self.date = answer.headers.get("Date") or ""
            return content

    @contextlib.contextmanager
    def _answer(self, request: _Request, read_timeout: float) -> Iterator[http.client.HTTPResponse]:
        connection, answer = self._sent(request, read_timeout)
        try:
            if not 200 <= answer.status < 300:
                try:
                    said = answer.read(_REFUSAL)
                except (OSError, http.client.HTTPException):
                    said = b""
                raise urllib.error.HTTPError(
                    request.address, answer.status, answer.reason, answer.headers, io.BytesIO(said)
                )
            yield answer
        finally:
            is_read = answer.isclosed()
            answer.close()
            if request.method == "GET" and is_read and not answer.will_close:
                self._idle.append(connection)
            else:
                connection.close()

    def _sent(self, request: _Request, timeout: float) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """Send a request; returns the beginning of the answer, with its connection."""
        if request.method == "GET" and self._idle:
            with contextlib.suppress(IndexError, OSError, http.client.HTTPException):
                # Another thread may take the last one.
                connection = self._idle.pop()
                connection.sock.settimeout(timeout)
                return connection, self._begin(connection, request)
        connection = self._connection(request, timeout)
        return connection, self._begin(connection, request)

    def _connection(self, request: _Request, timeout: float) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(request.address)
        if not parts.hostname:
            raise http.client.InvalidURL("no host given")
        at = self._proxy.at if self._proxy else parts.netloc
        if parts.scheme == "http":
            return http.client.HTTPConnection(at, timeout=timeout)
        connection = http.client.HTTPSConnection(at, timeout=timeout, context=self._tls)
        if self._proxy:
            connection.set_tunnel(parts.netloc, headers=self._proxy.headers)
        return connection

    def _begin(self, connection: http.client.HTTPConnection, request: _Request) -> http.client.HTTPResponse:
        """Send a request on a connection, which an error closes."""
        parts = urllib.parse.urlsplit(request.address)
        headers = request.headers
        if self._proxy and parts.scheme == "http":
            target, headers = request.address, {**headers, **self._proxy.headers}
        else:
            target = urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))
        try:
            connection.request(request.method, target, request.body, headers)
            return connection.getresponse()
        except BaseException:
            connection.close()
            raise
