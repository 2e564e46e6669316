"""The kubelet's registration socket: all resources of a directory share one watch and one connection."""

from __future__ import annotations

import os

from ...devices.events.watch import Watch
from ...support.channels import unix_channel
from ...support.file_identity import Identity, identity
from ...support.sockets import answers
from ...wire import device_plugin_v1beta1_pb2 as api
from ...wire import device_plugin_v1beta1_pb2_grpc as api_grpc

NAME = "kubelet.sock"

#: Seconds between two checks for a new kubelet: with inotify, and without inotify.
_SWEEP, _LOOK = 2.0, 0.05


class KubeletSocket:
    """The kubelet's socket in a device plugin directory."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.path = os.path.join(directory, NAME)
        self._connection: _Connection | None = None
        self._watch: Watch | None = None
        self._waiting = 0

    def identity(self) -> Identity | None:
        """The identity of the current socket; None if there is no socket."""
        return identity(self.path)

    def answers(self) -> bool:
        """Whether a process listens on the socket. An ended kubelet leaves its socket."""
        return answers(self.path)

    async def other_than(self, known: Identity | None) -> Identity:
        """Wait for a socket that is not ``known``, and return its identity."""
        if self._watch is None:
            self._watch = Watch(_SWEEP)
        watch = self._watch
        self._waiting += 1
        try:
            while True:
                # The watch starts before the check, so that no change is missed.
                watch.watch_now(self.directory)
                found = self.identity()
                if found is not None and found != known:
                    return found
                await watch.changed(None if watch.sees(self.directory) else _LOOK)
        finally:
            self._waiting -= 1
            if not self._waiting and watch is self._watch:
                # At each Allocate, the kubelet writes its checkpoint here, which would wake us.
                watch.watch_now(None)

    def close(self) -> None:
        """Stop the watch. Call it when no task waits in ``other_than``."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    async def register(self, request: api.RegisterRequest, timeout: float) -> None:
        """Call Register. timeout: seconds. Raises grpc.aio.AioRpcError.

        Simultaneous calls share a connection, because connecting is half of the work when a
        kubelet returns. The last of these calls closes the connection. After a failed call, later
        calls open a new connection, because gRPC would back off on the old one.
        """
        connection = self._connection = self._connection or _Connection(self.path)
        connection.users += 1
        is_usable = False
        try:
            await api_grpc.RegistrationStub(connection.channel).Register(request, timeout=timeout)
            is_usable = connection.users > 1
        finally:
            connection.users -= 1
            if not is_usable and self._connection is connection:
                self._connection = None
            if not connection.users:
                await connection.channel.close()


class _Connection:
    def __init__(self, path: str) -> None:
        self.channel = unix_channel(path)
        self.users = 0
