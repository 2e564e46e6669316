"""The one place that loads grpc, and that makes channels: to the kubelet's, the runtime's and plugins' unix sockets.

The core of grpc reads its settings once, when it is loaded: who needs grpc takes it from here.
"""

from __future__ import annotations

import os

os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# Its fork handlers spoil the pollers of a process that starts a program where Python forks for that (before 3.10; seen:
# "epoll_wait error: Bad file descriptor" and calls that never end). Nobody here speaks gRPC in a fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

import grpc as grpc
import grpc.aio

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


def unix_channel(path: str, receive_limit: int = RECEIVE_LIMIT) -> grpc.aio.Channel:
    """A channel to the unix socket at ``path``; nothing is dialled before its first call. receive_limit: bytes.

    Make a fresh one for each attempt to connect: one that has failed waits before it tries again.
    The caller closes it (it is an async context manager).
    """
    return grpc.aio.insecure_channel(
        "unix:" + path, options=(*_OPTIONS, ("grpc.max_receive_message_length", receive_limit))
    )
