"""Errors of the container runtime, with advice for the user."""

from __future__ import annotations

from ..support.channels import grpc

#: Advice for the user, by gRPC status code.
_ADVICE = {
    grpc.StatusCode.UNAVAILABLE: "check that the runtime runs, uses this socket, and lets this user open it",
    grpc.StatusCode.UNIMPLEMENTED: (
        "the socket does not serve CRI v1: turn on the runtime's CRI (containerd: remove cri from disabled_plugins)"
    ),
    grpc.StatusCode.DEADLINE_EXCEEDED: "the call took too long: read the runtime's log",
}


class CriError(Exception):
    """A call to the container runtime failed.

    socket: the path of the runtime's socket. attempted: the action, worded to follow "could not".
    code, details: the answer from the runtime or from gRPC.
    """

    def __init__(self, socket: str, attempted: str, code: grpc.StatusCode, details: str) -> None:
        self.socket = socket
        self.attempted = attempted
        self.code = code
        self.details = details
        advice = _ADVICE.get(code)
        super().__init__(
            "the container runtime at {} could not {}: {}: {}{}".format(
                socket, attempted, code.name, details, f" ({advice})" if advice else ""
            )
        )
