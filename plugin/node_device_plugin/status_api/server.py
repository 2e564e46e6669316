"""Serves the pages at a TCP address for scrapers and probes, and on a unix socket for root."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os

from ..declaration.fields import parse_http_address
from ..support.cancel_safe import done_within
from ..support.file_identity import identity
from ..support.sockets import PRIVATE_MODE, directory_is_lost
from ..telemetry.logs import Log, Tries
from .http import LARGEST_HEAD, Pages, Routes

log = Log(__name__)

#: Seconds between two tries to listen, and between two checks that the socket still exists.
_AGAIN = 5.0


class Endpoint:
    """Serves pages at an address that may change: ``host:port``, or the path of root's unix socket.

    If the address is in use, the endpoint logs the error and retries, and the plugin keeps serving
    the devices. If the socket disappears, the endpoint makes another socket. If the socket's
    directory is lost, ``run`` raises OSError. The process then ends, and after its restart it sees
    the new directory.
    """

    def __init__(self, routes: Routes, address: str = "") -> None:
        self._routes = routes
        self._address = address
        self._tries = Tries(log)
        #: Set after the first try to listen, also if it failed.
        self.tried = asyncio.Event()
        self._moved = asyncio.Event()

    def move(self, address: str) -> None:
        """Serve at another address; if it is empty, stop serving. Connected clients still get answers."""
        if address != self._address:
            self._address = address
            self._moved.set()

    async def run(self) -> None:
        """Serve until cancelled. Raises OSError if the directory of the socket is lost."""
        while True:
            self._moved.clear()
            address = self._address
            path = address if address.startswith("/") else ""
            try:
                server = await self._listen(address)
            except OSError as error:
                self.tried.set()
                self._tries.failed(logging.ERROR, "cannot serve", address=address, error=error.strerror or error)
                if path and directory_is_lost(error):
                    raise
                await done_within(self._moved.wait(), _AGAIN)
                continue
            self.tried.set()
            self._tries.went_well()
            mine = identity(path)
            try:
                while not (self._moved.is_set() or (path and (mine is None or identity(path) != mine))):
                    await done_within(self._moved.wait(), _AGAIN)
                if not self._moved.is_set():
                    log.warning("the socket was removed; serving again", socket=path)
            finally:
                if server is not None:
                    server.close()
                if mine is not None and identity(path) == mine:
                    os.unlink(path)

    async def _listen(self, address: str) -> asyncio.AbstractServer | None:
        """Start the server; None for an empty address. Raises OSError."""
        pages = Pages(self._routes)
        if address.startswith("/"):
            os.makedirs(os.path.dirname(address), mode=PRIVATE_MODE, exist_ok=True)
            own = await asyncio.start_unix_server(pages, address, limit=LARGEST_HEAD)
            # If someone removes the socket now, `run` notices and serves again.
            with contextlib.suppress(FileNotFoundError):
                os.chmod(address, 0o600)
            return own
        if not address:
            return None
        host, port = parse_http_address(address)
        server = await asyncio.start_server(pages, host or None, port, limit=LARGEST_HEAD)
        log.info("serving metrics, health and readiness", url=f"http://{address}")
        return server
