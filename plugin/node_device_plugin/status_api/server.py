"""Where the pages can be reached: a TCP address for scrapers and probes, a unix socket for this node's root."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import AsyncIterator, Optional, Tuple

from ..declaration.addresses import parse_http_address
from ..support.cancel_safe import done_within
from ..support.sockets import directory_is_lost
from ..telemetry.logs import Tries
from .http import Pages, Routes

log = logging.getLogger(__name__)

#: Seconds until it is tried again to listen, and between two looks whether the socket is still there.
_AGAIN = 5.0


class TcpEndpoint:
    """Serves pages at an address that may change. A port that is taken is said and tried again: the devices go on."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._address = ""
        self._tries = Tries(log)
        #: Set once it listens, or could not the first time.
        self.tried = asyncio.Event()
        self._moved = asyncio.Event()

    def move(self, address: str) -> None:
        """Serve at another address (``host:port``); nowhere if it is empty."""
        if address != self._address:
            self._address = address
            self._moved.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            self._moved.clear()
            address = self._address
            try:
                async with self._listening(address):
                    self.tried.set()
                    await self._moved.wait()
            except OSError as error:
                self.tried.set()
                self._tries.failed(logging.ERROR, "cannot serve metrics at %s: %s", address, error.strerror or error)
                await done_within(self._moved.wait(), _AGAIN)

    @contextlib.asynccontextmanager
    async def _listening(self, address: str) -> AsyncIterator[None]:
        if not address:
            yield
            return
        host, port = parse_http_address(address)
        server = await asyncio.start_server(Pages(self._routes), host or None, port)
        try:
            self._tries.went_well()
            log.info("metrics, health and readiness at http://%s", address)
            yield
        finally:
            server.close()


class UnixEndpoint:
    """Serves pages on a unix socket (see sockets), for root alone. If somebody removes the socket, it makes another.

    Fails where its folder is lost: the process ends, and gets the new folder when it is started again.
    """

    def __init__(self, path: str, routes: Routes) -> None:
        self._path = path
        self._routes = routes
        self._moved = asyncio.Event()
        self._tries = Tries(log)
        #: Set once it listens, or could not the first time.
        self.tried = asyncio.Event()

    def move(self, path: str) -> None:
        """Serve at another path; who is connected already gets its answer."""
        if path != self._path:
            self._path = path
            self._moved.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        while True:
            self._moved.clear()
            path = self._path
            try:
                os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
                server = await asyncio.start_unix_server(Pages(self._routes), path)
                os.chmod(path, 0o600)
            except OSError as error:
                self.tried.set()
                self._tries.failed(logging.ERROR, "cannot serve %s: %s", path, error.strerror or error)
                if directory_is_lost(error):
                    raise
                await done_within(self._moved.wait(), _AGAIN)
                continue
            self.tried.set()
            self._tries.went_well()
            mine = _identity(path)
            try:
                while mine is not None and _identity(path) == mine and not self._moved.is_set():
                    await done_within(self._moved.wait(), _AGAIN)
                if not self._moved.is_set():
                    log.warning("somebody removed %s; serving anew", path)
            finally:
                server.close()
                if mine is not None and _identity(path) == mine:
                    os.unlink(path)


def _identity(path: str) -> Optional[Tuple[int, int, int]]:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns
