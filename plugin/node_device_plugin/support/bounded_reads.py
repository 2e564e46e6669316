# SPDX-License-Identifier: Apache-2.0
"""Reads what pods or other users can write: regular files only, and no more bytes, values or seconds than expected."""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from collections.abc import Iterator
from typing import Any

#: Bytes. The status of a plugin with 50,000 devices and a checkpoint with them have about 20 MB.
LARGEST = 32 << 20
#: Values of a JSON document. Python needs up to 250 bytes for a small one.
_MOST_VALUES = 2_000_000
#: Digits of a number. The time to read a number grows with the square of its digits.
_MOST_DIGITS = 100
_CHUNK = 1 << 16


def read_file(path: str, limit: int = LARGEST, follow: bool = True) -> bytes:
    """Return the bytes of a regular file. Raises OSError, also for another kind of file and for one over the limit.

    follow: whether the path may be a link. Opens no device, because an open alone may have an effect, and never waits
    for a pipe.
    """

    with open(path, "rb", buffering=0, opener=_followed if follow else _regular) as file:
        return b"".join(_chunks(iter(lambda: file.read(_CHUNK), b""), limit, path))


def text_of(path: str) -> str | None:
    """Return a file's text; None if the file cannot be read as in `read_file`, or if the text is not UTF-8."""
    try:
        return read_file(path).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def beginning_of(path: str, most: int = 1 << 16) -> str:
    """Return the beginning of a file's text, which may have any bytes; empty if it is no readable regular file."""
    try:
        with open(path, "rb", opener=_regular) as file:
            return os.fsdecode(file.read(most))
    except OSError:
        return ""


def json_of(content: bytes) -> Any:
    """Return the document in ``content``. Raises ValueError, also if it nests too deep or has too many values."""
    # The import takes a part of the time of the plugin's probe.
    import json

    if sum(content.count(each) for each in (b",", b"[", b"{")) > _MOST_VALUES:
        raise ValueError("has more than %d values" % _MOST_VALUES)
    try:
        document = json.loads(content, parse_int=_number)
        if b"\\u" in content:
            # Encoding raises ValueError for half of a surrogate pair, which no text can have.
            json.dumps(document, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise ValueError("nests too deep") from error
    return document


def received(connection: socket.socket, until: float, limit: int = LARGEST) -> bytes:
    """Return what the other side sends until it closes the connection. Raises OSError, also at a limit.

    until: as of time.monotonic().
    """

    def chunk() -> bytes:
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError(errno.ETIMEDOUT, "the answer took too long")
        connection.settimeout(left)
        return connection.recv(_CHUNK)

    return b"".join(_chunks(iter(chunk, b""), limit, None))


def entries(directory: str, most: int) -> list[os.DirEntry[str]]:
    """Return at most ``most`` entries of a directory; none if the directory cannot be read."""
    found: list[os.DirEntry[str]] = []
    try:
        with os.scandir(directory) as listed:
            for entry in listed:
                if len(found) == most:
                    break
                found.append(entry)
    except OSError:
        pass
    return found


def _followed(path: str, flags: int) -> int:
    return _regular(path, flags, 0)


def _regular(path: str, flags: int, links: int = os.O_NOFOLLOW) -> int:
    """Open a regular file. Raises OSError for any other. links: O_NOFOLLOW, or 0 to follow a link."""
    found = os.open(path, os.O_PATH | links)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", path)
        # This opens the same file, even if the path has another one by now.
        return os.open(f"/proc/self/fd/{found}", flags | os.O_NONBLOCK)
    finally:
        os.close(found)


def _chunks(chunks: Iterator[bytes], limit: int, path: str | None) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > limit:
            raise OSError(errno.EFBIG, "is larger than %d bytes" % limit, path)
        yield chunk


def _number(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError("a number has more than %d digits" % _MOST_DIGITS)
    return int(text)
