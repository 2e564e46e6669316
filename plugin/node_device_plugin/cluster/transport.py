"""One request over HTTP, with a limit of its whole time and of the answer's size.

A timeout of sockets holds for each piece of an answer: a server that sends a byte a second is never late.
"""

from __future__ import annotations

import http.client
import io
import queue
import ssl
import threading
import urllib.error
import urllib.request
from typing import Any

from .proxy import Proxy

#: Bytes of a refusal that are read.
_REFUSAL = 65536


class TookTooLong(OSError):
    """The answer did not end in time."""


class TooLarge(OSError):
    """The answer has more bytes than the limit."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """An API server redirects nobody: whoever does is something in front of it, such as a login, and gets no token."""

    def redirect_request(self, *_arguments: Any) -> None:
        return None


class Transport:
    """Sends requests."""

    def __init__(self, tls: ssl.SSLContext, proxy: Proxy | None) -> None:
        self._proxy = proxy
        self._opener = urllib.request.build_opener(
            # Without it Python would ask the environment by its own rules.
            urllib.request.ProxyHandler({}),
            _NoRedirect(),
            urllib.request.HTTPSHandler(context=tls),
        )

    def ask(
        self, method: str, address: str, body: Any, headers: Any, *, read_timeout: float, seconds: float, limit: int
    ) -> bytes:
        """The answer's content.

        read_timeout: seconds for each piece of the answer. seconds: for the whole of it. limit: bytes.
        Raises TookTooLong, TooLarge, and as urllib: HTTPError, whose content is read already, OSError, HTTPException.
        """
        request = urllib.request.Request(address, body, headers, method=method)  # noqa: S310 (a kubeconfig has no other)
        if self._proxy:
            self._proxy.lead(request)
        outcomes: queue.SimpleQueue[bytes | Exception] = queue.SimpleQueue()

        def work() -> None:
            try:
                outcomes.put(self._content(request, read_timeout, limit))
            except Exception as error:
                outcomes.put(error)

        # Names, a proxy and TLS may take their time, too, which nothing can end from outside. A thread that is late is
        # left alone: it ends with the server's silence, or with the process.
        threading.Thread(target=work, daemon=True).start()
        try:
            outcome = outcomes.get(timeout=seconds)
        except queue.Empty:
            raise TookTooLong(f"the answer did not end in {seconds:g} s") from None
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _content(self, request: urllib.request.Request, read_timeout: float, limit: int) -> bytes:
        try:
            with self._opener.open(request, timeout=read_timeout) as answer:
                content: bytes = answer.read(limit + 1)
                if len(content) > limit:
                    raise TooLarge("the answer has more than %d MiB" % (limit >> 20))
                if answer.length:
                    raise http.client.IncompleteRead(content, answer.length)
                return content
        except urllib.error.HTTPError as error:
            try:
                said = error.read(_REFUSAL)
            except (OSError, http.client.HTTPException):
                said = b""
            raise urllib.error.HTTPError(
                error.url, error.code, str(error.reason), error.headers, io.BytesIO(said)
            ) from None
