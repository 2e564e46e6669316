"""The only module that loads grpc. Makes channels and servers on unix sockets.

grpc's core reads its settings only at load time, so other modules must import grpc from here.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import AsyncIterator
from typing import Callable, TypeVar

from .cancel_safe import to_the_end
from .sockets import PRIVATE_MODE

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# Before Python 3.10, starting a program forks the process. grpc's fork handlers then break the
# process's pollers (seen: "epoll_wait error: Bad file descriptor" and calls that never end). No
# child process here uses gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# With this setting, the thread that hands calls to Python also reads the sockets. Otherwise, another
# thread pool would first have to wake that thread, which waits for a core on a busy node and so
# delays Allocate.
os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_listener")

import grpc as grpc
import grpc.aio

Client = TypeVar("Client", bound="UnixClient")

_OPTIONS = (
    # By default, gRPC for Python sends the %-encoded path as the authority, which Go servers refuse.
    ("grpc.default_authority", "localhost"),
    # Without its own pool, a new channel inherits the back-off of earlier failures on the same
    # socket (seen: 1.7 to 2.4 s instead of 3 to 5 ms).
    ("grpc.use_local_subchannel_pool", 1),
    # No proxy serves the sockets of this node.
    ("grpc.enable_http_proxy", 0),
)


#: Maximum bytes of a response, as in the kubelet's calls to a container runtime. gRPC's default,
#: 4 MiB, is too small for PodResources on a node with 50,000 devices.
RECEIVE_LIMIT = 16 << 20
#: Maximum length of a unix socket's path, in bytes.
_LONGEST_PATH = 107
#: Maximum seconds for running calls to end when a server stops.
_STOP_GRACE = 0.5


def unix_channel(path: str, receive_limit: int = RECEIVE_LIMIT) -> grpc.aio.Channel:
    """A channel to the unix socket at ``path``. Connects at its first call. receive_limit: bytes.

    Make a new channel for each attempt to connect, because a failed channel waits before a retry.
    The caller must close the channel, which is an async context manager.
    """
    return grpc.aio.insecure_channel(
        "unix:" + path, options=(*_OPTIONS, ("grpc.max_receive_message_length", receive_limit))
    )


class UnixClient:
    """A connection to a server on a unix socket. ``_channel`` exists only inside ``async with client``.

    Make a new client after a failed connection, because a failed client waits before a retry.
    """

    def __init__(self, socket: str) -> None:
        self.socket = socket

    async def __aenter__(self: Client) -> Client:
        self._channel = unix_channel(self.socket)
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._channel.close(None)


def _bind_error(path: str) -> OSError | None:
    """Why a socket cannot be bound at a path; None if it can. gRPC does not report the error, but logs it each time."""
    try:
        with socket.socket(socket.AF_UNIX) as tried:
            tried.bind(path)
        os.unlink(path)
    except OSError as error:
        return error
    return None


@contextlib.asynccontextmanager
async def unix_server(path: str, add_services: Callable[[grpc.aio.Server], None]) -> AsyncIterator[None]:
    """Serve on a unix socket at ``path`` inside this block. Creates a missing directory.

    Raises OSError if the socket cannot be bound. Close every stream before the block ends, because
    the end of the block waits for open streams.
    """
    if len(os.fsencode(path)) > _LONGEST_PATH:
        raise OSError(0, "the path is longer than %d bytes, the limit for a socket" % _LONGEST_PATH)
    directory = os.path.dirname(path)
    os.makedirs(directory, mode=PRIVATE_MODE, exist_ok=True)
    # The kubelet ignores names that begin with a dot. A killed process may have left the file.
    trial = os.path.join(directory, f".{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        os.unlink(trial)
    problem = _bind_error(trial)
    if problem is not None:
        raise problem
    server = grpc.aio.server()
    add_services(server)
    try:
        server.add_insecure_port("unix:" + path)
    except RuntimeError as error:
        raise _bind_error(path) or OSError(0, "the socket cannot be bound") from error
    try:
        await server.start()
        yield
    finally:
        try:
            await to_the_end(server.stop(_STOP_GRACE))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
