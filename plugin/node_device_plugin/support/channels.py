"""The one place that loads grpc, and that makes channels and servers on unix sockets.

The core of grpc reads its settings once, when it is loaded: who needs grpc takes it from here.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator
from typing import Callable, TypeVar

from .cancel_safe import to_the_end

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# Its fork handlers spoil the pollers of a process that starts a program where Python forks for that (before 3.10; seen:
# "epoll_wait error: Bad file descriptor" and calls that never end). Nobody here speaks gRPC in a fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# A server reads its sockets in the thread that hands calls to Python, not in one of another pool that has to wake it:
# where processes wait for a core, so does each thread that is woken, and Allocate holds up the admission of pods.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")

import grpc as grpc
import grpc.aio

Client = TypeVar("Client", bound="UnixClient")

_OPTIONS = (
    # Python's default for unix sockets is the %-encoded path, which servers in Go refuse.
    ("grpc.default_authority", "localhost"),
    # Without a pool of its own, a new channel inherits the back-off of earlier failures on the same socket
    # (seen: 1.7 to 2.4 s instead of 3 to 5 ms).
    ("grpc.use_local_subchannel_pool", 1),
    # A proxy is never meant for a socket of this node.
    ("grpc.enable_http_proxy", 0),
)


#: Bytes of the largest answer that is taken: what the kubelet takes from a container runtime. The default, 4 MiB,
#: is less than PodResources needs on a node with 50,000 devices.
RECEIVE_LIMIT = 16 << 20
#: Longest path that a unix socket can have, in bytes.
_LONGEST_PATH = 107
#: Seconds that calls have to end when a server stops.
_STOP_GRACE = 0.5


def unix_channel(path: str, receive_limit: int = RECEIVE_LIMIT) -> grpc.aio.Channel:
    """A channel to the unix socket at ``path``; nothing is dialled before its first call. receive_limit: bytes.

    Make a fresh one for each attempt to connect: one that has failed waits before it tries again.
    The caller closes it (it is an async context manager).
    """
    return grpc.aio.insecure_channel(
        "unix:" + path, options=(*_OPTIONS, ("grpc.max_receive_message_length", receive_limit))
    )


class UnixClient:
    """One connection to a server on a unix socket: ``async with client``. Opened: ``_channel`` is there.

    A client that failed to connect waits before it tries again: make a new one instead.
    """

    def __init__(self, socket: str) -> None:
        self.socket = socket

    async def __aenter__(self: Client) -> Client:
        self._channel = unix_channel(self.socket)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._channel.close(None)


def _bind_error(path: str) -> OSError:
    """Why a socket cannot be bound, which gRPC does not say."""
    try:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.bind(path)
        os.unlink(path)
    except OSError as error:
        return error
    return OSError(0, "it cannot be bound")


@contextlib.asynccontextmanager
async def unix_server(path: str, add_services: Callable[[grpc.aio.Server], None]) -> AsyncIterator[None]:
    """Serve on a unix socket at ``path`` inside this block, in a folder that is made where it is missing.

    OSError where that is not possible. Leave the block with no stream open, or it waits for it.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise OSError(0, "the path is longer than the %d bytes of a socket" % _LONGEST_PATH)
    os.makedirs(os.path.dirname(path), mode=0o750, exist_ok=True)
    server = grpc.aio.server()
    add_services(server)
    try:
        server.add_insecure_port("unix:" + path)
    except RuntimeError as error:
        raise _bind_error(path) from error
    try:
        await server.start()
        yield
    finally:
        try:
            await to_the_end(server.stop(_STOP_GRACE))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
