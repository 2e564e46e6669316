"""Finds the positions of statements in a valid TOML text. tomllib does not report positions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from ...support.toml import tomllib

#: A pattern of all strings, for re.DOTALL.
TEXTS = "|".join(
    [
        r'"""(?:\\.|[^\\])*?"""' + '"{0,2}',  # up to two quotes may stand before the closing three
        r"'''.*?'''" + "'{0,2}",
        r'"(?:\\.|[^"\\\n])*"',
        r"'[^'\n]*'",
    ]
)
_TEXT = re.compile(TEXTS, re.DOTALL)
_IN_BRACKETS = re.compile(rf"{TEXTS}|#[^\n]*|[\[\]{{}}]|[^\"'#\[\]{{}}]+", re.DOTALL)
_KEY_PART = re.compile(rf"{TEXTS}|[A-Za-z0-9_-]+", re.DOTALL)
_DOT = re.compile(r"[ \t]*\.[ \t]*")
_SCALAR = re.compile(r"[^\n#]*")
_BLANK = re.compile(r"[ \t\r\n]*")


class Statement(NamedTuple):
    """A table header, or a key with its value.

    path: from the document's root; None in an array of tables. header: the path of the statement's table.
    start, end: positions of the statement's lines, including the line end. part_ends: end positions of the key's parts.
    value: start and end of the value; None for a header.
    """

    path: tuple[str, ...] | None
    header: tuple[str, ...] | None
    start: int
    end: int
    part_ends: tuple[int, ...]
    value: tuple[int, int] | None


def statements(text: str) -> Iterator[Statement]:
    """Yield all headers and keys in order. Keys in inline tables are part of a value."""
    header: tuple[str, ...] | None = ()
    position = 0
    while True:
        position = _BLANK.match(text, position).end()
        if position == len(text):
            return
        start = text.rfind("\n", 0, position) + 1
        if text[position] == "#":
            position = _line_end(text, position)
        elif text[position] == "[":
            array = text.startswith("[[", position)
            names, ends = _key(text, _BLANK.match(text, position + (2 if array else 1)).end())
            header = None if array else names
            position = _line_end(text, ends[-1])
            yield Statement(header, header, start, position, ends, None)
        else:
            names, ends = _key(text, position)
            at = _BLANK.match(text, text.index("=", ends[-1]) + 1).end()
            value = (at, _value_end(text, at))
            position = _line_end(text, value[1])
            yield Statement(None if header is None else header + names, header, start, position, ends, value)


def _key(text: str, position: int) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return a key's parts and their end positions."""
    names, ends = [], []
    while True:
        part = _KEY_PART.match(text, position)
        raw = part[0]
        names.append(tomllib.loads(f"_ = {raw}")["_"] if raw[0] in "\"'" else raw)
        ends.append(part.end())
        dot = _DOT.match(text, part.end())
        if not dot:
            return tuple(names), tuple(ends)
        position = dot.end()


def _value_end(text: str, position: int) -> int:
    if text[position] in "\"'":
        return _TEXT.match(text, position).end()
    if text[position] not in "[{":
        return position + len(_SCALAR.match(text, position)[0].rstrip())
    depth = 0
    while True:
        token = _IN_BRACKETS.match(text, position)
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token[0], 0)
        position = token.end()
        if depth == 0:
            return position


def _line_end(text: str, position: int) -> int:
    """Return the position after the next line end."""
    end = text.find("\n", position)
    return len(text) if end < 0 else end + 1
