"""One request over HTTP, with a limit of its whole time and of the answer's size.

A timeout of sockets holds for each piece of an answer: a server that sends a byte a second is never late.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import ssl
import threading
import urllib.error
import urllib.request
from typing import Any, List

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


class _Request(urllib.request.Request):
    """sockets: others for the connections that were opened for it. late: set once its time is over."""

    sockets: List[socket.socket]
    late: threading.Event


class _KeepsSockets(urllib.request.AbstractHTTPHandler):
    def do_open(self, http_class: Any, req: Any, **http_conn_args: Any) -> Any:
        class Connection(http_class):  # type: ignore[misc]
            def __init__(self, *arguments: Any, **options: Any) -> None:
                super().__init__(*arguments, **options)
                self._create_connection = self._connected

            def _connected(self, *arguments: Any) -> socket.socket:
                # Before a proxy and TLS are spoken to, which may take their time, too.
                made = socket.create_connection(*arguments)
                req.sockets.append(made.dup())
                if req.late.is_set():
                    made.close()
                    raise TookTooLong
                return made

        return super().do_open(Connection, req, **http_conn_args)


class _Http(_KeepsSockets, urllib.request.HTTPHandler):
    pass


class _Https(_KeepsSockets, urllib.request.HTTPSHandler):
    pass


class Transport:
    """Sends requests. handlers: more of urllib's, such as for a proxy."""

    def __init__(self, tls: ssl.SSLContext, *handlers: urllib.request.BaseHandler) -> None:
        self._opener = urllib.request.build_opener(
            # Without it Python would ask the environment by its own rules.
            urllib.request.ProxyHandler({}),
            *handlers,
            _NoRedirect(),
            _Http(),
            _Https(context=tls),
        )

    def ask(
        self, method: str, address: str, body: Any, headers: Any, *, read_timeout: float, seconds: float, limit: int
    ) -> bytes:
        """The answer's content.

        read_timeout: seconds for each piece of the answer. seconds: for the whole of it. limit: bytes.
        Raises TookTooLong, TooLarge, and as urllib: HTTPError, whose content is read already, OSError, HTTPException.
        """
        request = _Request(address, body, headers, method=method)
        request.sockets, request.late = [], threading.Event()
        late = request.late

        def cut() -> None:
            late.set()
            for each in request.sockets:
                # It may have ended by itself.
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds, cut)
        timer.daemon = True
        timer.start()
        try:
            return self._content(request, read_timeout, limit, late)
        except urllib.error.HTTPError:
            raise
        except (OSError, http.client.HTTPException) as error:
            if late.is_set():
                raise TookTooLong("the answer did not end in %g s" % seconds) from error
            raise
        finally:
            timer.cancel()
            for each in request.sockets:
                each.close()

    def _content(self, request: _Request, read_timeout: float, limit: int, late: threading.Event) -> bytes:
        try:
            with self._opener.open(request, timeout=read_timeout) as answer:
                content: bytes = answer.read(limit + 1)
                if len(content) > limit:
                    raise TooLarge("the answer has more than %d MiB" % (limit >> 20))
                if answer.length or late.is_set():
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
