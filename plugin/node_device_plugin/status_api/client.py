"""The client with which the commands call the running plugin over its unix socket."""

from __future__ import annotations

import asyncio
from typing import Any

from ..support import answers, bounded_reads
from ..support.sockets import status_socket
from . import shapes

#: Maximum seconds for an answer. A page is fast, but a reload first scans every device.
_TIMEOUT = {"GET": 15.0, "POST": 60.0}
_CHUNK = 1 << 16


class NotAnswering(Exception):
    """No plugin answers; the message names the socket and the reason."""


async def ask(directory: str, method: str, path: str) -> Any:
    """The JSON data of GET /status or of a POST of the plugin whose socket is in ``directory``. Raises NotAnswering."""
    socket = status_socket(directory)
    try:
        return await asyncio.wait_for(_ask(socket, method, path), _TIMEOUT[method])
    except (ValueError, asyncio.TimeoutError) as error:
        # This clause precedes OSError, because TimeoutError is an OSError since Python 3.11.
        reason = answers.readable(str(error), 400) or f"no answer in {_TIMEOUT[method]:g} s"
    except PermissionError as error:
        raise NotAnswering(
            f"{socket}: {error.strerror}: only root may open this socket; run the command as root"
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
    raise NotAnswering(f"no plugin answers at {socket}: {reason}: run systemctl status node-device-plugin")


async def _ask(socket: str, method: str, path: str) -> Any:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        writer.write((f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").encode())
        answer = bytearray()
        # Whoever replaces the socket may answer without an end.
        while chunk := await reader.read(_CHUNK):
            answer += chunk
            if len(answer) > bounded_reads.LARGEST:
                raise ValueError("the answer is larger than %d bytes" % bounded_reads.LARGEST)
        head, _, body = bytes(answer).partition(b"\r\n\r\n")
    finally:
        writer.close()
    if not head.startswith(b"HTTP/1.1 ") or b"\r\nContent-Type: application/json\r\n" not in head + b"\r\n":
        raise ValueError("unexpected answer {!r}".format(head.split(b"\r\n")[0].decode("latin-1")))
    shape = shapes.STATUS if method == "GET" else shapes.OUTCOME
    return answers.shaped(shape, bounded_reads.json_of(body), "the answer")
