"""A small HTTP/1.1 server on the plugin's event loop: GET and HEAD for pages, POST for actions.

The server closes the connection after each answer. A coroutine makes each page, so the server never blocks.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from http import HTTPStatus
from typing import Callable, NamedTuple

from ..telemetry.logs import Log

log = Log(__name__)

#: Maximum bytes of a request line with its headers; the server refuses a larger request. Start the server
#: with this limit, so that a connection buffers little more.
LARGEST_HEAD = 16384
#: Maximum seconds for a client to send its request, and again to read the answer. Making a page has no limit, because
#: a reload scans all devices.
_TIMEOUT = 10.0
#: Seconds that a client has to close the connection after the answer; see _read_to_end.
_LINGER = 2.0
#: Maximum idle connections, of one address and in total. Idle is who has sent no request, or has got the answer.
_IDLE_OF_ONE, _IDLE = 64, 128
#: The same for connections that do not read their answer, which takes memory.
_UNREAD_OF_ONE, _UNREAD = 8, 32
#: Maximum pages that are made at once.
_PAGES = 128
#: Turns of the event loop until the data that came with a connection is read, and its request parsed.
_TURNS_TO_READ = 3


class Response(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    body: str
    content_type: str = "text/plain; charset=utf-8"


#: The coroutine function that makes a page.
Page = Callable[[], Awaitable[Response]]
#: Maps method (GET or POST) and path to the page.
Routes = Mapping[tuple[str, str], Page]


class _Connections:
    """Connections in one state, with the client's address (empty for a unix socket), oldest first.

    Beyond a limit, the oldest one ends, so that a flood does not keep out probes or scrapers. of_one: of one address.
    """

    def __init__(self, of_one: int, in_total: int) -> None:
        self._of_one, self._in_total = of_one, in_total
        self._addresses: dict[asyncio.StreamWriter, str] = {}

    def add(self, newest: asyncio.StreamWriter) -> None:
        address = self._addresses[newest] = _address_of(newest)
        of_one = [each for each, its in self._addresses.items() if address and its == address]
        for connections, most in ((of_one, self._of_one), (list(self._addresses), self._in_total)):
            for oldest in connections[: max(0, len(connections) - most)]:
                oldest.transport.abort()
                # Its own task runs later.
                self.discard(oldest)

    def discard(self, connection: asyncio.StreamWriter) -> None:
        self._addresses.pop(connection, None)


class Pages:
    """Answers the connections of a server (for asyncio.start_server and start_unix_server)."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._idle, self._unread = _Connections(_IDLE_OF_ONE, _IDLE), _Connections(_UNREAD_OF_ONE, _UNREAD)
        self._pages_being_made = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request and close the connection."""
        # With a high-water mark of 0, drain() waits until the whole answer is sent.
        writer.transport.set_write_buffer_limits(high=0)
        try:
            with contextlib.suppress(OSError, asyncio.TimeoutError):
                await self._answer(reader, writer)
        finally:
            self._idle.discard(writer)
            self._unread.discard(writer)
            # Use abort(), because close() waits until the client has read the rest of the answer.
            if not writer.transport.is_closing():
                writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        response, head_only = await self._response(reader, writer)
        if writer.transport.is_closing():
            return
        body = response.body.encode()
        head = "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n" % (
            response.status,
            response.status.phrase,
            response.content_type,
            len(body),
        )
        # A browser must neither cache the page nor guess another content type.
        head += "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n"
        writer.write(head.encode() + (b"" if head_only else body))
        if writer.transport.get_write_buffer_size():
            self._unread.add(writer)
            await asyncio.wait_for(writer.drain(), _TIMEOUT)
            self._unread.discard(writer)
        writer.write_eof()
        self._idle.add(writer)
        await asyncio.wait_for(_read_to_end(reader), _LINGER)

    async def _response(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[Response, bool]:
        request = asyncio.ensure_future(_request(reader))
        # A flood may fill the limits within one turn of the loop. Who has sent a request gets its answer all the same.
        for _turn in range(_TURNS_TO_READ):
            await asyncio.sleep(0)
        if not request.done():
            self._idle.add(writer)
        try:
            method, target = await asyncio.wait_for(request, _TIMEOUT)
        except (ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return _plain(HTTPStatus.BAD_REQUEST), False
        finally:
            self._idle.discard(writer)
        path = target.partition("?")[0]
        asked = "GET" if method == "HEAD" else method
        page = self._routes.get((asked, path))
        if page is None:
            known = any(path == each for _, each in self._routes)
            return _plain(HTTPStatus.METHOD_NOT_ALLOWED if known else HTTPStatus.NOT_FOUND), method == "HEAD"
        if self._pages_being_made >= _PAGES:
            return _plain(HTTPStatus.SERVICE_UNAVAILABLE), method == "HEAD"
        self._pages_being_made += 1
        try:
            return await page(), method == "HEAD"
        except Exception:
            # A page that fails must not end the plugin.
            log.exception("cannot answer a request", path=path)
            return _plain(HTTPStatus.INTERNAL_SERVER_ERROR), method == "HEAD"
        finally:
            self._pages_being_made -= 1


async def _request(reader: asyncio.StreamReader) -> tuple[str, str]:
    """The method and target of a request. Raises ValueError if it is too large or not HTTP/1."""
    head = await reader.readuntil(b"\r\n\r\n")
    words = head.partition(b"\r\n")[0].decode("latin-1").split()
    if len(head) > LARGEST_HEAD or len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise ValueError("not an HTTP/1 request, or too large")
    return words[0], words[1]


async def _read_to_end(reader: asyncio.StreamReader) -> None:
    """Discard the client's data until the client closes the connection.

    If a connection closes with unread bytes, the kernel resets it and the client loses the answer.
    """
    while await reader.read(LARGEST_HEAD):
        pass


def _address_of(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""


def _plain(status: HTTPStatus) -> Response:
    return Response(status, status.phrase + "\n")
